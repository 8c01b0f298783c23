"""`estimate`: how many calls, tokens and how much money the memory of what waits would take, before it is begun.

Reckoned from the sessions' counters by one query. What a call answers is the average of the latest calls of its
purpose, and before there are any a usual number.
"""

from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.db.models import Avg, Count, F, FloatField, Q, Sum
from django.db.models.functions import Cast, Ceil, Least

from moments_app.engines import engine_name
from moments_app.models import EngineCall
from moments_app.models.engine_call import cost_of
from moments_app.streams.form import MAX_TURNS
from sessions_app.models import Session, UserProfile
from sessions_app.models.session import UNBUILT

PROMPT_TOKENS = 1_500  # of a call beside the transcript: prompt, shape, what is known already
LATEST_CALLS = 1_000
USUAL_ANSWER = {"moment-builder": 900, "memory-extraction": 500, "rolling-summary": 400, "session-digest": 450}
SHOWN_TOKENS = 2_000  # of the latest turns, that summary and digest are made of


@dataclass(frozen=True)
class Estimate:
    """What one purpose would take.

    Args:
        purpose: as it is recorded with each call.
        engine: that would be called.
        usd: None when the price of the model is not known.
    """

    purpose: str
    engine: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None


def estimate(user: UserProfile | None = None, *, everything: bool = False) -> list[Estimate]:
    """What it would take to settle all sessions.

    Args:
        user: only this person's sessions; None is everybody's.
        everything: as if nothing had been made yet; else only what waits.
    """
    found = _reckoned(user, everything)
    return [
        _of("moment-builder", settings.MOMENT_BUILDER.model, found["builds"], found["unbuilt_tokens"]),
        _of("memory-extraction", settings.MEMORY_FORMATION.model, found["formations"], found["unformed_tokens"]),
        _of("rolling-summary", settings.ROLLING_SUMMARY.model, found["sessions"], found["shown_tokens"]),
        _of("session-digest", settings.SESSION_COMPACTION.model, found["sessions"], found["shown_tokens"]),
    ]


def _reckoned(user: UserProfile | None, everything: bool) -> dict[str, float | None]:
    sessions = (Session.objects.for_user(user) if user else Session.objects.all()).filter(message_count__gt=0)
    a_turn = Cast(F("total_tokens"), FloatField()) / F("message_count")
    waiting = sessions.annotate(
        unbuilt=F("message_count") if everything else UNBUILT,
        unformed=F("message_count") if everything else F("message_count") - F("formed_message_count"),
    ).annotate(to_build=a_turn * F("unbuilt"), to_form=a_turn * F("unformed"))
    open_ones = Q(unbuilt__gt=0)
    return waiting.aggregate(
        sessions=Count("id", filter=open_ones),
        builds=Sum(Ceil(F("to_build") / settings.MOMENT_BUILDER.max_input_tokens), filter=open_ones),
        unbuilt_tokens=Sum("to_build"),
        formations=Sum(Ceil(Cast(F("unformed"), FloatField()) / MAX_TURNS)),
        unformed_tokens=Sum("to_form"),
        shown_tokens=Sum(Least("to_build", float(SHOWN_TOKENS), output_field=FloatField()), filter=open_ones),
    )


def _of(purpose: str, model: str, calls: float | None, tokens: float | None) -> Estimate:
    engine, number = engine_name(model), round(calls or 0)
    given = round(tokens or 0) + number * PROMPT_TOKENS
    latest = EngineCall.objects.filter(purpose=purpose, engine=engine, ok=True).order_by("-created_at", "-id")
    an_answer = latest[:LATEST_CALLS].aggregate(average=Avg("output_tokens"))["average"] or USUAL_ANSWER[purpose]
    answered = round(number * an_answer)
    return Estimate(purpose, engine, number, given, answered, cost_of(engine, given, answered))
