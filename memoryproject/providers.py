"""Whether the providers of the settings take their keys: asked when workers start, not by the first job.

Each is asked for its list of models, which costs nothing. An endpoint that has no such list is given the smallest call
of the kind it is there for. A provider that is merely busy or broken refuses nobody. A store of archives elsewhere is
given a small file, which it has to give back.
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
ANSWER_BYTES = 10_000_000  # some list thousands of models
PURPOSE = "check"
WHERE_TO_LOOK = {"credential": "API_KEY", "address": "BASE_URL", "unavailable": "BASE_URL", "quota": "API_KEY"}
CHAT = "/chat/completions", {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
EMBEDDING = "/embeddings", {"input": ["Hello."], "encoding_format": "float"}
RERANK = "/rerank", {"query": "Hello.", "documents": ["Hello."]}


@dataclass(frozen=True)
class Provider:
    """An endpoint of the settings.

    Args:
        prefix: of the settings that say where it is.
        url, key: as they are set.
        model: that is asked for.
        smallest: path and body of the smallest call that it is there for; None where no model of ours is asked.
    """

    prefix: str
    url: str
    key: SecretStr
    model: str = ""
    smallest: tuple[str, dict[str, Any]] | None = None

    def refusal(self) -> str:
        """Return a sentence when it refuses the key or is not at the address; else blank."""
        error = self._ask("/models", None)
        if error and error.kind in ("address", "rejected"):  # it may have no such list
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
    """Yield those that are set."""
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
    """Ask each provider; return a sentence for each that refuses."""
    answers = [provider.refusal() for provider in providers()]
    answers.append(_of_archives())
    return [answer for answer in answers if answer]


def _of_archives() -> str:
    conf = settings.RETENTION
    told = archive_files.refusal() if conf.is_elsewhere and conf.action == "archive" else ""
    return told and f"{told} Check {conf.storage_setting}."
