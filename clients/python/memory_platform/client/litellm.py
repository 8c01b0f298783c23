"""A callback that adds memory to LiteLLM's calls: `litellm.callbacks = [MemoryCallback()]`.

For a LiteLLM proxy, set `litellm_settings: {callbacks: memory_platform.client.litellm.callback}`. The field `user` of a
call names the person, and `litellm_session_id` the conversation. The callback doesn't change calls without `user`. If
the platform doesn't respond, the call continues without memory.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from litellm.constants import REDACTED_BY_LITELLM
from litellm.integrations.custom_logger import CustomLogger

from memory_platform.client import AsyncMemory
from memory_platform.client.chat import INSTRUCTIONS, newest_message, text_of, with_memory
from memory_platform.client.errors import MemoryPlatformError

SECONDS = 2.0  # to wait for memory before a call

logger = logging.getLogger(__name__)


class MemoryCallback(CustomLogger):
    """See the module's docstring. Works for `acompletion`, and for the chat completions of a proxy.

    Args:
        options: The options of the client: `url` and `key`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any]:
        """Add memory to a call."""
        user, messages = kwargs.get("user"), kwargs.get("messages")  # LiteLLM passes only keyword arguments
        if not user or not messages or getattr(call_type, "value", "") != "acompletion":
            return kwargs
        session = _session(user, kwargs.get("litellm_session_id"), messages)
        try:
            async with AsyncMemory(user, session_id=session, attempts=1, timeout=SECONDS, **self._options) as memory:
                return {**kwargs, "messages": await with_memory(memory, messages)}
        except MemoryPlatformError as error:
            logger.warning("A call continues without memory: %s", error)
            return kwargs

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Store the user's message and the complete answer."""
        user = kwargs.get("user")
        if not user or kwargs.get("call_type") != "acompletion":
            return
        messages = kwargs["messages"]
        said = {"user": newest_message(messages), "assistant": response_obj.choices[0].message.content or ""}
        if REDACTED_BY_LITELLM in said.values():  # `litellm.turn_off_message_logging` is set
            return
        call = kwargs["litellm_call_id"]
        turns = [
            {"role": role, "content": text, "external_id": f"{call}:{role}"} for role, text in said.items() if text
        ]
        session = _session(user, kwargs["litellm_params"].get("litellm_session_id"), messages)
        try:
            async with AsyncMemory(user, session_id=session, **self._options) as memory:
                if turns:
                    await memory.add(turns, source="litellm")
        except MemoryPlatformError as error:
            logger.warning("A round is not stored: %s", error)


def _session(user: str, given: str | None, messages: list[Mapping[str, Any]]) -> str:
    """Return the conversation's id. If there is none, derive it from the user and the first message of the history."""
    if given:
        return given
    first = next((text_of(message) for message in messages if message["role"] not in INSTRUCTIONS), "")
    return f"chat-{hashlib.sha256(json.dumps([user, first]).encode()).hexdigest()[:32]}"


callback = MemoryCallback()
