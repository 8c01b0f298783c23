"""The effort of working through sessions, as aggregates that one query over the sessions computes."""

from dataclasses import dataclass

from django.conf import settings
from django.db.models import F, FloatField
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast


@dataclass(frozen=True)
class Workload:
    """The calls and the tokens of transcript that sessions would take.

    Args:
        engine: name of the one that is called.
        calls: of the engine; a sum over sessions.
        tokens: of turns that the calls are given in all.
        usual_answer: tokens of an answer, as long as there are no calls to learn it from.
        prompt_tokens: of a call beside the transcript: prompt, and what is known already.
        purpose: of the calls, where the process has no prompt.
    """

    engine: str
    calls: Combinable
    tokens: Combinable
    usual_answer: int
    prompt_tokens: int
    purpose: str = ""


def settling_combines() -> bool:
    """Tell whether a settling asks for all that is due in one call, which is its own to reckon with."""
    return settings.ENGINE.uses_model and settings.ENGINE.combines_calls


def tokens_of(turns: Combinable) -> Combinable:
    """Return the tokens that so many turns of a session have, by the average of the session."""
    return Cast(F("total_tokens"), FloatField()) / F("message_count") * turns


def turns_that(waiting: F | Combinable, *, everything: bool) -> Combinable:
    """Return the number of turns of a session that are reckoned with: all, or those that wait."""
    return F("message_count") if everything else waiting
