"""Estimate the work for sessions, as aggregates that one query over the sessions computes."""

from dataclasses import dataclass

from django.conf import settings
from django.db.models import F, FloatField
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast


@dataclass(frozen=True)
class Workload:
    """The number of calls and transcript tokens for sessions.

    Args:
        calls: the number of calls; a sum over sessions.
        tokens: total tokens of the turns that the calls receive.
        usual_answer: tokens of an answer, used until there are calls to learn it from.
        prompt_tokens: tokens of a call in addition to the transcript: the prompt and known data.
        purpose: purpose of the calls, if the process has no prompt.
    """

    engine: str
    calls: Combinable
    tokens: Combinable
    usual_answer: int
    prompt_tokens: int
    purpose: str = ""


def settling_combines() -> bool:
    """Return whether settling sends all due work in one combined call, which has its own estimate."""
    return settings.ENGINE.uses_model and settings.ENGINE.combines_calls


def tokens_of(turns: Combinable) -> Combinable:
    """Return the tokens of some turns of a session, based on the session's average."""
    return Cast(F("total_tokens"), FloatField()) / F("message_count") * turns


def turns_that(waiting: F | Combinable, *, everything: bool) -> Combinable:
    """Return the number of turns of a session to estimate: all, or only waiting ones."""
    return F("message_count") if everything else waiting
