"""The engine without a model: it quotes the most informative sentences word for word.

`sentences.py` reads turns: `kinds.py` finds small talk, sentences that need context, and what a sentence says about
its speaker. Other modules write moments, memories and texts. Words are data (`engines/tables/`). The same input always
gives the same output. It can't draw conclusions or resolve contradictions; see docs/engines.md.
"""

from collections.abc import Sequence

from moments_app.engines.calls.recall_query import QueryAnswer, QueryRequest
from moments_app.engines.extractive.moments import build_moments
from moments_app.engines.extractive.texts import consolidate, digest, form_memories, roll_summary
from moments_app.engines.shared_call import Part


class ExtractiveEngine:
    """The engine without a model. Its calls are not recorded and never fail."""

    name = "extractive"
    build_moments = staticmethod(build_moments)
    roll_summary = staticmethod(roll_summary)
    form_memories = staticmethod(form_memories)
    consolidate = staticmethod(consolidate)
    digest = staticmethod(digest)

    def with_model(self, model: str) -> "ExtractiveEngine":
        """Return itself."""
        return self

    def with_answers(self, parts: Sequence[Part]) -> "ExtractiveEngine":
        """Return itself, because combining calls saves nothing."""
        return self

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Return the message itself: its rarest words make the best query."""
        return QueryAnswer(query=request.message[:1_000])
