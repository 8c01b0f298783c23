"""Makes calls by LiteLLM with the callback. Run by a Python that has it: `python in_litellm.py URL KEY`."""

import asyncio
import hashlib
import logging
import sys
from contextlib import suppress
from typing import Any

import litellm

from memory_platform.client import Memory, Refused
from memory_platform.client.litellm import MemoryCallback

URL, KEY = sys.argv[1:]


async def ask(*said: str, session: str | None = None, stream: bool = False, **fields: Any) -> None:
    """Ask the model with a history of alternating messages."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(said)]
    named = {"litellm_session_id": session} if session else {}
    answer = await litellm.acompletion(
        model="openai/test-model", messages=messages, stream=stream, num_retries=0, **named, **fields
    )
    if stream:
        async for _ in answer:
            pass


async def turns(session: str, count: int = 2) -> list[str]:
    """Return a conversation once it has this many messages. LiteLLM calls the callback in the background."""
    with Memory("nora", session_id=session, url=URL, key=KEY) as memory:
        for _ in range(600):
            with suppress(Refused):  # the conversation doesn't exist yet
                said = [message["content"] for message in memory.transcript()]
                if len(said) >= count:
                    return said
            await asyncio.sleep(0.1)
    raise AssertionError(f"{session} does not have {count} messages.")


async def main() -> None:
    litellm.callbacks = [MemoryCallback(url=URL, key=KEY)]
    await ask("I restore kilns in Turin.", session="friday", user="nora")
    assert await turns("friday") == ["I restore kilns in Turin.", "Noted."]
    await ask("Where do I restore kilns?", session="monday", user="nora", stream=True)
    assert await turns("monday") == ["Where do I restore kilns?", "Noted."]
    derived = "chat-" + hashlib.sha256(b'["nora", "Hello."]').hexdigest()[:32]
    await ask("Hello.", user="nora")
    assert await turns(derived) == ["Hello.", "Noted."]
    await ask("Hello.", "Noted.", "Which kilns?", user="nora")
    assert await turns(derived, 4) == ["Hello.", "Noted.", "Which kilns?", "Noted."]
    await ask("Nobody in particular.", session="friday")
    logging.disable()
    litellm.callbacks = [MemoryCallback(url=URL, key="mem_wrong")]
    await ask("Where do I restore kilns?", session="monday", user="nora")
    assert len(await turns("friday")) == 2
    sys.stdout.write("All checks passed.\n")


asyncio.run(main())
