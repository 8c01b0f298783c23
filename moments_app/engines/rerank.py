"""Score texts by how well they answer a query, at an endpoint with the `/rerank` protocol.

Cohere, Jina and vLLM accept `documents` and return `{"results": [{"index": 0, "relevance_score": 0.9}]}`. Hugging
Face's TEI accepts `texts` and returns `[{"index": 0, "score": 0.9}]`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.endpoint import Endpoint, Refused
from moments_app.engines.interface import RERANK, CallRecord

ANSWER_BYTES = 1_000_000  # some endpoints repeat the documents
REFUSED_FIELD = (400, 422)  # status codes for an unknown field

_take_texts: set[tuple[str, str]] = set()  # endpoints that need `texts`


class Reranker:
    """A client of one reranking model. See `Endpoint`.

    Args:
        model: Blank if the endpoint serves one model only.
        timeout: Seconds for one call.
    """

    def __init__(
        self, *, base_url: str, api_key: str, model: str, timeout: float, record: Callable[[CallRecord], None]
    ) -> None:
        self._endpoint = Endpoint(
            base_url=base_url,
            path="/rerank",
            api_key=api_key,
            model=model,
            max_response_bytes=ANSWER_BYTES,
            record=record,
            engine=reranker_name(model),
        )
        self._timeout = timeout

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text, in the order of the texts; higher is better. May raise `EngineError`."""
        try:
            if self._endpoint.address not in _take_texts:
                try:
                    return self._call({"query": query, "documents": list(texts), "top_n": len(texts)}, len(texts))
                except Refused:
                    pass
            scores = self._call({"query": query, "texts": list(texts)}, len(texts))
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None
        _take_texts.add(self._endpoint.address)
        return scores

    def _call(self, body: dict[str, Any], count: int) -> list[float]:
        return self._endpoint.call(
            RERANK,
            body,
            seconds=self._timeout,
            read=lambda answer: _read(answer, count),
            refuses=lambda response: "documents" in body and response.status_code in REFUSED_FIELD,
        )


def reranker_name(model: str) -> str:
    return f"rerank:{model or 'default'}"


def _read(answer: Any, count: int) -> list[float]:
    entries = answer.get("results") if isinstance(answer, dict) else answer
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidAnswer("", "it has no list of scores.")
    scores = {entry.get("index"): entry.get("relevance_score", entry.get("score")) for entry in entries}
    if len(entries) != count or scores.keys() != set(range(count)):
        raise InvalidAnswer("", f"its scores are not numbered from 0 to {count - 1:,}.")
    if not all(type(score) in (int, float) and math.isfinite(score) for score in scores.values()):
        raise InvalidAnswer("", "it has a score that is not a finite number.")
    return [float(scores[index]) for index in range(count)]
