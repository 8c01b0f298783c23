"""Clients of an embedding model at any OpenAI-compatible endpoint, and of a reranking model.

Vectors are stored and compared for years, so an answer is either accepted as a whole or rejected. It must have one
vector per text. Each vector must have the requested width, and only numbers that fit into the column. The caller
retries.
"""

import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

from memoryproject.embeddings import Recipe
from moments_app.engines.answers import InvalidAnswer
from moments_app.engines.endpoint import Endpoint, Refused
from moments_app.engines.interface import EMBEDDING, RERANK, CallRecord

# Common models reject the whole request if a text has more than about 8,000 tokens. Texts rarely have more tokens than
# characters.
TEXT_MAX_CHARS = 8_000
# Maximum bytes per number. A number has up to 20 characters, and some endpoints put each one on an indented line.
ANSWER_BYTES_A_NUMBER = 40
# The largest 16-bit float, and the smallest positive one. Smaller numbers are stored as 0.
HALF_PRECISION_MAX = 65_504
HALF_PRECISION_MIN = 2**-24

# Endpoints and models that reject parameters for the width and format, but return the right width anyway.
_of_fixed_width: set[tuple[str, str]] = set()


class Embedder:
    """Embeds texts with one model. See `Endpoint`.

    Args:
        timeout: Total seconds for one call of `embed`, however slowly the answer arrives.
        calls_at_once: Maximum number of parallel calls.
    """

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key: str,
        recipe: Recipe,
        name: str = "",
        timeout: float,
        max_response_bytes: int,
        record: Callable[[CallRecord], None],
        calls_at_once: int = 1,
    ) -> None:
        self._endpoint = Endpoint(
            base_url=base_url,
            path="/embeddings",
            api_key=api_key,
            model=recipe.name,
            engine=name,
            max_response_bytes=max_response_bytes,
            record=record,
        )
        self.name = self._endpoint.name
        self.calls_at_once = calls_at_once
        self._recipe = recipe
        self._timeout = timeout

    def recording(self, record: Callable[[CallRecord], None]) -> Self:
        other = copy(self)
        other._endpoint = replace(self._endpoint, record=record)
        return other

    def record(self, call: CallRecord) -> None:
        self._endpoint.record(call)

    def embed(self, texts: Sequence[str], *, is_query: bool = False) -> list[list[float]]:
        """Return the vectors of the first 8,000 characters of each text, in order, using one request.

        Raises:
            ValueError: There is no text, or one is blank.
            EngineError: The endpoint gave no valid answer.
        """
        try:
            return self._vectors(_shortened(texts), is_query=is_query)
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None

    def _vectors(self, texts: list[str], *, is_query: bool) -> list[list[float]]:
        """Request floats of the right width. If the endpoint rejects these parameters, retry without them."""
        deadline = time.monotonic() + self._timeout
        prefix = self._recipe.prefix(is_query=is_query)
        body = {"input": [prefix + text for text in texts]} | self._recipe.fields(is_query=is_query)
        if self._endpoint.address not in _of_fixed_width:
            try:
                form = {"encoding_format": "float", "dimensions": self._recipe.dimensions}
                return self._call(body | form, self._timeout)
            except Refused:
                pass
        vectors = self._call(body, deadline - time.monotonic())
        _of_fixed_width.add(self._endpoint.address)
        return vectors

    def _call(self, body: dict[str, Any], seconds: float) -> list[list[float]]:
        return self._endpoint.call(
            EMBEDDING,
            body,
            seconds=seconds,
            read=lambda answer: _read(answer, len(body["input"]), self._recipe.dimensions),
            refuses=lambda response: "dimensions" in body and response.status_code in (400, 422),
        )


def _shortened(texts: Sequence[str]) -> list[str]:
    """Return the part of each text that is embedded. Raise `ValueError` if there is no text, or if one is blank."""
    cut = [text.strip()[:TEXT_MAX_CHARS] for text in texts]
    if not cut or not all(cut):
        raise ValueError("There is no text to embed, or one is blank.")
    return cut


def _read(answer: Any, count: int, dimensions: int) -> list[list[float]]:
    """Return the vectors of an answer, sorted by index, because endpoints may return them in any order."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidAnswer("", "it has no list of vectors.")
    if len(entries) != count:
        raise InvalidAnswer("", f"it has {len(entries):,} vectors, not {count:,}.")
    vectors = {entry.get("index"): entry.get("embedding") for entry in entries if type(entry.get("index")) is int}
    if vectors.keys() != set(range(count)):
        raise InvalidAnswer("", f"its vectors are not numbered from 0 to {count - 1:,}.")
    for index, vector in vectors.items():
        if problem := _problem(vector, dimensions):
            raise InvalidAnswer("", f"the vector numbered {index:,} {problem}.")
    return [[float(number) for number in vectors[index]] for index in range(count)]


def _problem(vector: Any, dimensions: int) -> str:
    """Return the problem with a vector, or a blank string."""
    if not isinstance(vector, list):
        return "is not a list of numbers"
    if len(vector) != dimensions:
        return f"has {len(vector):,} numbers, not {dimensions:,}"
    if not {*map(type, vector)} <= {int, float}:
        return "contains something other than numbers"
    sizes = list(map(abs, vector))
    largest = max(sizes)
    # The maximum may ignore a NaN, but the sum does not.
    if not largest <= HALF_PRECISION_MAX or math.isnan(sum(sizes)):
        return f"contains a number that is not finite or is over {HALF_PRECISION_MAX:,}"
    if largest < HALF_PRECISION_MIN:
        return "is all zeros"
    return ""


# --- the reranker, which scores texts by how well they answer a query, with any `/rerank` endpoint ---
#
# Cohere, Jina and vLLM accept `documents` and return `{"results": [{"index": 0, "relevance_score": 0.9}]}`. Hugging
# Face's TEI accepts `texts` and returns `[{"index": 0, "score": 0.9}]`.

RERANK_ANSWER_BYTES = 1_000_000  # large, because some endpoints repeat the documents in the answer
REFUSED_FIELD = (400, 422)  # status codes that an endpoint returns for an unknown field

_need_texts: set[tuple[str, str]] = set()  # endpoints that reject `documents`, and accept `texts` instead


class Reranker:
    """A client of one reranking model. See `Endpoint`.

    Args:
        model: The name of the model. Blank if the endpoint serves only one.
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
            max_response_bytes=RERANK_ANSWER_BYTES,
            record=record,
            engine=reranker_name(model),
        )
        self._timeout = timeout

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text, in the order of the texts; higher is better. May raise `EngineError`."""
        try:
            if self._endpoint.address not in _need_texts:
                try:
                    return self._call({"query": query, "documents": list(texts), "top_n": len(texts)}, len(texts))
                except Refused:
                    pass
            scores = self._call({"query": query, "texts": list(texts)}, len(texts))
        except InvalidAnswer as error:
            raise self._endpoint.invalid(error) from None
        _need_texts.add(self._endpoint.address)
        return scores

    def _call(self, body: dict[str, Any], count: int) -> list[float]:
        return self._endpoint.call(
            RERANK,
            body,
            seconds=self._timeout,
            read=lambda answer: _scores_in(answer, count),
            refuses=lambda response: "documents" in body and response.status_code in REFUSED_FIELD,
        )


def reranker_name(model: str) -> str:
    return f"rerank:{model or 'default'}"


def _scores_in(answer: Any, count: int) -> list[float]:
    entries = answer.get("results") if isinstance(answer, dict) else answer
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidAnswer("", "it has no list of scores.")
    scores = {entry.get("index"): entry.get("relevance_score", entry.get("score")) for entry in entries}
    if len(entries) != count or scores.keys() != set(range(count)):
        raise InvalidAnswer("", f"its scores are not numbered from 0 to {count - 1:,}.")
    if not all(type(score) in (int, float) and math.isfinite(score) for score in scores.values()):
        raise InvalidAnswer("", "it has a score that is not a finite number.")
    return [float(scores[index]) for index in range(count)]
