"""Checks of the configured providers' keys when workers start, before the first job needs them.

A check requests the provider's list of models, which is free. If there is no such list, it makes the smallest possible
call. A provider that is only overloaded or failing passes. For a remote storage of archives, the check writes a small
file and reads it back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from pydantic import SecretStr

from moments_app.engines.endpoint import Endpoint
from moments_app.engines.interface import EngineError
from sessions_app.retention import archive_files

SECONDS = 10.0
ANSWER_BYTES = 10_000_000  # some providers list thousands of models
PURPOSE = "check"
WHERE_TO_LOOK = {"credential": "API_KEY", "address": "BASE_URL", "unavailable": "BASE_URL", "quota": "API_KEY"}
CHAT = "/chat/completions", {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
EMBEDDING = "/embeddings", {"input": ["Hello."], "encoding_format": "float"}
RERANK = "/rerank", {"query": "Hello.", "documents": ["Hello."]}


@dataclass(frozen=True)
class Provider:
    """An endpoint in the settings.

    Args:
        url, key: The values of its settings.
        smallest: The path and body of the smallest call. None if the settings name no model.
    """

    prefix: str
    url: str
    key: SecretStr
    model: str = ""
    smallest: tuple[str, dict[str, Any]] | None = None

    def refusal(self) -> str:
        """Return a sentence if the provider rejects the key or is not at the URL. Otherwise, return a blank string."""
        error = self._ask("/models", None)
        if error and error.kind in ("address", "rejected"):  # it may have no list of models
            error = self._ask(*self.smallest) if self.smallest else None
        if error is None or error.kind not in WHERE_TO_LOOK:
            return ""
        return f"{error} Check {self.prefix}{WHERE_TO_LOOK[error.kind]}."

    def _ask(self, path: str, body: dict[str, Any] | None) -> EngineError | None:
        endpoint = Endpoint(
            base_url=self.url or None,
            path=path,
            api_key=self.key.get_secret_value(),
            model=self.model,
            max_response_bytes=ANSWER_BYTES,
            record=lambda _: None,
        )
        try:
            endpoint.call(PURPOSE, body, seconds=SECONDS, read=lambda answer: answer, refuses=lambda _: False)
        except EngineError as error:
            return error
        return None


def providers() -> Iterator[Provider]:
    """Yield the configured providers."""
    if settings.ENGINE.uses_model:
        model = settings.ENGINE.model
        yield Provider("ENGINE__", settings.ENGINE.base_url, settings.ENGINE.api_key, model, CHAT)
    if settings.EMBEDDING.has_endpoint:
        conf = settings.EMBEDDING
        yield Provider("EMBEDDING__", conf.base_url, conf.api_key, conf.model, EMBEDDING)
    if settings.RERANK.base_url:
        rerank = settings.RERANK
        yield Provider("RERANK__", rerank.base_url, rerank.api_key, rerank.model, RERANK)
    if settings.CHAT.upstream_base_url:
        yield Provider("CHAT__UPSTREAM_", settings.CHAT.upstream_base_url, settings.CHAT.upstream_api_key, "upstream")


def refusals() -> list[str]:
    """Check each provider. Return a sentence for each that fails."""
    answers = [provider.refusal() for provider in providers()]
    answers.append(_of_archives())
    return [answer for answer in answers if answer]


def _of_archives() -> str:
    conf = settings.RETENTION
    told = archive_files.refusal() if conf.is_elsewhere and conf.action == "archive" else ""
    return told and f"{told} Check {conf.storage_setting}."
