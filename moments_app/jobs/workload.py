"""The effort of working through sessions, as aggregates that one query over the sessions computes."""

from dataclasses import dataclass

from django.db.models import Aggregate, Count, F, FloatField, Sum
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Least
from django.db.models.lookups import GreaterThan

from sessions_app.models.session import UNBUILT

SHOWN_TOKENS = 2_000.0  # of a session's latest turns, which a summary or a digest is made of


@dataclass(frozen=True)
class Workload:
    """The calls and the tokens of transcript that sessions would take.

    Args:
        model: set for the process.
        calls: of the engine.
        tokens: of turns that the calls are given in all.
        usual_answer: tokens of an answer, as long as there are no calls to learn it from.
    """

    model: str
    calls: Aggregate
    tokens: Aggregate
    usual_answer: int


def tokens_of(turns: Combinable) -> Combinable:
    """Return the tokens that so many turns of a session have, by the average of the session."""
    return Cast(F("total_tokens"), FloatField()) / F("message_count") * turns


def one_call_a_session(model: str, *, usual_answer: int, everything: bool) -> Workload:
    """Return the workload of a process that is given the latest turns of each session once."""
    unbuilt = F("message_count") if everything else UNBUILT
    shown = Least(tokens_of(unbuilt), SHOWN_TOKENS, output_field=FloatField())
    return Workload(model, Count("id", filter=GreaterThan(unbuilt, 0)), Sum(shown), usual_answer)
