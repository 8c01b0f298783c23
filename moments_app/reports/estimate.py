"""`estimate`: estimate the calls, tokens and cost of memory before it is built.

Each process estimates its calls and tokens from the counters of sessions, and one query computes them all. The length
of an answer is the average of the latest calls of its purpose, or a typical number if there are none. Queries for
contexts are estimated from their frequency so far.
"""

from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.db.models import Avg, Sum

from moments_app.engines import EXTRACTIVE, engine_name
from moments_app.jobs.process import processes
from moments_app.jobs.workload import Workload, tokens_of, turns_that
from moments_app.models import EngineCall, PromptResource
from moments_app.models.engine_call import cost_of
from moments_app.recall import query
from sessions_app.models import Session, UserProfile
from sessions_app.models.session import UNBUILT

LATEST_CALLS = 1_000
QUERY_TOKENS = 500  # of a call in addition to its turns


@dataclass(frozen=True)
class Estimate:
    """The estimate for one purpose.

    Args:
        purpose: as recorded with each call.
        engine: the engine that would be called.
        input_tokens, output_tokens: total tokens of requests and answers.
        usd: None if the price of the model is unknown.
    """

    purpose: str
    engine: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None


def estimate(user: UserProfile | None = None, *, everything: bool = False) -> list[Estimate]:
    """Estimate the effort of settling all sessions.

    Args:
        user: only this person's sessions; None: all people's.
        everything: estimate as if all conversations happened again, round by round; otherwise only waiting work.
    """
    workloads = _workloads(everything=everything)
    sums = {f"{purpose}_calls": workload.calls for purpose, workload in workloads.items()}
    sums |= {f"{purpose}_tokens": workload.tokens for purpose, workload in workloads.items()}
    sessions = Session.objects.for_user(user) if user else Session.objects.all()
    reckoned = sessions.filter(message_count__gt=0).aggregate(**sums)
    return [
        _estimate(purpose, workload, reckoned[f"{purpose}_calls"], reckoned[f"{purpose}_tokens"])
        for purpose, workload in workloads.items()
    ]


def _workloads(*, everything: bool) -> dict[str, Workload]:
    """Return the workload of each purpose."""
    found = [(process.prompt_purpose, process.workload(everything=everything)) for process in processes()]
    workloads = {workload.purpose or purpose: workload for purpose, workload in found if workload}
    if queries := _queries(everything=everything):
        workloads[PromptResource.Purpose.RECALL_QUERY] = queries
    return workloads


def _queries(*, everything: bool) -> Workload | None:
    """Return the queries for contexts that turns would come with; None if there never were any."""
    asked = EngineCall.objects.made().filter(purpose=PromptResource.Purpose.RECALL_QUERY).count()
    turns = Session.objects.aggregate(all=Sum("message_count"))["all"]
    if not asked or not turns:
        return None
    share, shown = asked / turns, float(query.TURNS)
    calls = Sum(turns_that(UNBUILT, everything=everything)) * share
    tokens = Sum(tokens_of(turns_that(UNBUILT, everything=everything))) * share * shown
    return Workload(engine_name(settings.ENGINE.model_for_speed), calls, tokens, 20, QUERY_TOKENS)


def _estimate(purpose: str, workload: Workload, calls: float | None, tokens: float | None) -> Estimate:
    engine, number = workload.engine, round(calls or 0)
    given = round(tokens or 0) + number * workload.prompt_tokens
    latest = EngineCall.objects.made().filter(purpose=purpose, engine=engine, ok=True).order_by("-created_at", "-id")
    an_answer = latest[:LATEST_CALLS].aggregate(average=Avg("output_tokens"))["average"] or workload.usual_answer
    answered = round(number * an_answer)
    usd = Decimal(0) if engine == EXTRACTIVE else cost_of(engine, given, answered)
    return Estimate(purpose, engine, number, given, answered, usd)
