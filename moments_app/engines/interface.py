"""What an engine is: the thing that writes memory text.

A process hands an engine plain data and gets plain, validated data back. Engines know nothing of the database, of
sessions or of jobs, so they can be called with no transaction open. There are two: `extractive/` (no model) and
`model.py` (a language model behind an OpenAI-compatible endpoint).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from moments_app.engines.calls.consolidation import ConsolidationAnswer, ConsolidationRequest
from moments_app.engines.calls.digest import DigestAnswer, DigestRequest
from moments_app.engines.calls.formation import FormationAnswer, FormationRequest
from moments_app.engines.calls.moments import MomentAnswer, MomentRequest
from moments_app.engines.calls.recall_query import QueryAnswer, QueryRequest
from moments_app.engines.calls.summary import SummaryAnswer, SummaryRequest
from moments_app.engines.grounding import LeftOut
from moments_app.engines.shared_call import Part

EMBEDDING, RERANK = "embedding", "rerank"  # purposes of their calls


class About(StrEnum):
    """The kinds of failed calls. Each kind has one consequence."""

    TEXT = "text"  # the job fails after its attempts; no other job waits
    ANSWER = "answer"  # the same, and the failure counts against the version of the prompt
    CREDENTIAL = "credential"  # the circuit opens at once, and holds all jobs
    LOAD = "load"  # the circuit opens after a second failure, for as long as `Retry-After` says
    NETWORK = "network"  # the circuit opens after a second failure, and probes


ABOUT = {
    "rejected": About.TEXT,
    "invalid_answer": About.ANSWER,
    "too_large": About.ANSWER,
    "credential": About.CREDENTIAL,
    "quota": About.CREDENTIAL,
    "address": About.CREDENTIAL,
    "rate_limited": About.LOAD,
    "timeout": About.NETWORK,
    "unavailable": About.NETWORK,
    "server_error": About.NETWORK,
}


@dataclass(frozen=True)
class Exchange:
    """What was said in a call: what the model was asked, and what it answered, if that could be read."""

    asked: str
    answered: str


@dataclass(frozen=True)
class CallRecord:
    """The cost and the end of one call of a model; its text only where it failed.

    Args:
        purpose: the process's purpose, e.g. `moment-builder`.
        engine: name of the engine, e.g. `openai:gpt-4.1-mini`.
        input_tokens, output_tokens: as the endpoint reports them, else None.
        latency_ms: wall time, milliseconds.
        error_kind: one of `ABOUT`; blank if the call succeeded.
        error: one sentence for an operator, without prompt, completion or key.
        retry_after: seconds the endpoint asked us to wait, or None.
        is_broken_off: it was ended by ourselves, which says nothing about the endpoint.
        kept: number of sentences and items of the answer that were kept.
        left_out: those that were not, each with the reason; not stored with the call.
        exchange: what was said, where the call failed.
        is_beside: it failed beside another call for the same, and tells nothing more of the engine.
        is_part: it tells of a part of a combined call alone, which is on record with its tokens and its time.
    """

    purpose: str
    engine: str
    latency_ms: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    error_kind: str = ""
    error: str = ""
    retry_after: float | None = None
    is_broken_off: bool = False
    kept: int = 0
    left_out: Sequence[LeftOut] = field(default=(), repr=False)
    exchange: Exchange | None = field(default=None, repr=False)
    is_part: bool = False
    is_beside: bool = False

    @property
    def dropped(self) -> Counter[str]:
        """The number of sentences and items that were left out, by reason."""
        return Counter(one.reason for one in self.left_out)


class EngineError(Exception):
    """The engine gave no usable answer. Nothing was changed; the job may try again.

    Args:
        kind: as in `CallRecord.error_kind`.
        message: one sentence for an operator.
        retry_after: seconds the endpoint asked us to wait, or None.
    """

    def __init__(self, kind: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class Engine(Protocol):
    """The interface of both engines.

    Attributes:
        name: of the engine, with its model.
    """

    name: str

    def with_model(self, model: str) -> "Engine":
        """Return the same engine with another model; one that uses none is the same with any."""
        ...

    def with_answers(self, parts: Sequence[Part]) -> "Engine":
        """Ask for several answers in one call, and return an engine that has them; one without a model returns itself.

        The returned engine asks for what is missing or invalid when it is called.

        Raises:
            EngineError: no answer could be had.
        """
        ...

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Divide the window into moments and say what they add to the profile.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Take new turns into a rolling summary and drop what the window has left behind.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """Say what the turns add to each stream.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        """Consolidate observations into a text.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...

    def digest(self, request: DigestRequest) -> DigestAnswer:
        """Say what has to be known to go on with a session, and what is to be learned from it.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Say what to look up in memory before a message is answered.

        Raises:
            EngineError: no valid answer could be had.
        """
        ...
