"""The cost of recorded model calls, and an estimate of the cost of pending work.

Each process defines expressions that estimate its calls and tokens from the counters of sessions. One query evaluates
all of them. The estimated length of an answer is the average over the latest calls with the same purpose, or a typical
number if there are none.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import add
from typing import Any

from django.conf import settings
from django.db.models import Avg, Count, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncDate, TruncMonth
from django.utils import timezone

from moments_app.engines import EXTRACTIVE, engine_name
from moments_app.jobs.process import Workload, processes, tokens_of, turns_to_estimate
from moments_app.models import EngineCall, Job, PromptResource, Summary
from moments_app.models.engine_call import cost_of
from moments_app.recall import query
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.session import UNBUILT

MAX_JOBS = 20_000  # maximum jobs of a person, newest first
DAYS = 30
TOP_PEOPLE = 20  # maximum number of people to list
SUMMARIES = 1_000  # number of newest summaries to time
SLOWEST = 5
LATEST_CALLS = 1_000  # number of newest calls from which the length of answers is estimated
QUERY_TOKENS = 500  # estimated tokens per call in addition to the turns


@dataclass(frozen=True)
class Usage:
    """Totals of a group of calls."""

    calls: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal = Decimal(0)  # cost of the calls whose price is known
    unpriced: int = 0  # successful calls without a price

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, astuple(self), astuple(other)))


def total_usage(rows: Sequence[tuple[Any, ...]]) -> Usage:
    """Return the total usage of rows whose last element is a `Usage`."""
    return sum((row[-1] for row in rows), Usage())


def usage_by(calls: QuerySet[EngineCall], *by: str) -> list[tuple[Any, ...]]:
    """Return the usage of calls, grouped by columns. A row has the values of these columns, followed by a `Usage`."""
    sums = {
        "n_calls": Count("pk"),
        "n_failed": Count("pk", filter=Q(ok=False)),
        "n_in": Sum("input_tokens", default=0),
        "n_out": Sum("output_tokens", default=0),
        "n_usd": Sum("cost_usd", default=Decimal(0)),
        "n_unpriced": Count("pk", filter=Q(ok=True, cost_usd=None)),
    }
    rows = calls.order_by().values(*by).annotate(**sums).values_list(*by, *sums)
    return [(*row[: len(by)], Usage(*row[len(by) :])) for row in rows]


# --- of one person ---


@dataclass(frozen=True)
class PersonCost:
    """The usage of calls for one person."""

    months: list[tuple[datetime, str, Usage]]  # (first of the month, purpose, usage), latest month first
    left_out: datetime | None  # jobs queued up to this time are not counted; None: all jobs are counted

    @property
    def total(self) -> Usage:
        return total_usage(self.months)


def cost_of_person(user: UserProfile, calls: QuerySet[EngineCall]) -> PersonCost:
    """Sum the usage of a person's newest jobs, from the calls that the operator may see."""
    jobs = Job.objects.for_user(user).order_by("-queued_at", "-id")
    by_month = calls.filter(job__in=jobs.values("pk")[:MAX_JOBS]).annotate(month=TruncMonth("created_at"))
    months = usage_by(by_month, "month", "purpose")
    months.sort(key=lambda row: (-row[0].timestamp(), row[1]))
    beyond = list(jobs.values_list("queued_at", flat=True)[MAX_JOBS : MAX_JOBS + 1])
    return PersonCost([(month, purpose, used) for month, purpose, used in months], beyond[0] if beyond else None)


# --- of all ---


@dataclass(frozen=True)
class SummaryTimes:
    """The durations of the newest summaries in seconds."""

    number: int
    mean: float | None
    slowest: list[tuple[int, str, float]]  # (primary key, session_id, seconds)
    stuck: int  # unfinished summaries without a job


@dataclass(frozen=True)
class SiteCost:
    """The usage of all calls in the last `DAYS` days, most expensive rows first."""

    made_at: datetime
    days: list[tuple[date, str, Usage]]  # (day, purpose, usage), latest day first
    turn_tokens: dict[date, int]  # tokens of new turns that still exist
    applications: list[tuple[int | None, str, Usage]]  # primary key, name, usage
    people: list[tuple[int, str, Usage]]  # primary key, user_id, usage
    prompts: list[tuple[int, str, int, Usage]]  # primary key, name, number of the version, usage
    summaries: SummaryTimes

    @property
    def total(self) -> Usage:
        return total_usage(self.days)

    @property
    def by_day(self) -> list[tuple[date, int, Usage]]:
        """The tokens of turns and the usage, for each day that has either, latest first."""
        used: dict[date, Usage] = dict.fromkeys(self.turn_tokens, Usage())
        for day, _, usage in self.days:
            used[day] = used.get(day, Usage()) + usage
        return [(day, self.turn_tokens.get(day, 0), used[day]) for day in sorted(used, reverse=True)]

    @property
    def purposes(self) -> list[tuple[str, Usage]]:
        used: dict[str, Usage] = {}
        for _, purpose, usage in self.days:
            used[purpose] = used.get(purpose, Usage()) + usage
        return _by_cost([*used.items()])

    @property
    def all_turn_tokens(self) -> int:
        return sum(self.turn_tokens.values())

    @property
    def input_tokens_per_turn_token(self) -> float | None:
        """The input tokens of models per token of new turns; None if there are no new turns."""
        return self.total.tokens_in / self.all_turn_tokens if self.all_turn_tokens else None


def site_cost() -> SiteCost:
    now = timezone.now()
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    calls = EngineCall.objects.filter(created_at__gte=since)
    of_people = calls.filter(job__user__isnull=False)
    return SiteCost(
        made_at=now,
        days=_by_day(calls),
        turn_tokens=_turn_tokens(since),
        applications=_by_application(calls),
        people=_by_cost(usage_by(of_people, "job__user", "job__user__user_id"))[:TOP_PEOPLE],
        prompts=_by_cost(
            usage_by(
                calls.filter(prompt_version__isnull=False),
                "prompt_version__resource",
                "prompt_version__resource__name",
                "prompt_version__number",
            )
        ),
        summaries=_summary_times(),
    )


def _by_day(calls: QuerySet[EngineCall]) -> list[tuple[date, str, Usage]]:
    rows = usage_by(calls.annotate(day=TruncDate("created_at")), "day", "purpose")
    return [(day, purpose, used) for day, purpose, used in sorted(rows, key=lambda row: (-row[0].toordinal(), row[1]))]


def _turn_tokens(since: datetime) -> dict[date, int]:
    turns = Message.objects.all_turns().filter(arrived_at__gte=since).annotate(day=TruncDate("arrived_at")).order_by()
    return dict(turns.values("day").annotate(tokens=Sum("tokens")).values_list("day", "tokens"))


def _by_application(calls: QuerySet[EngineCall]) -> list[tuple[int | None, str, Usage]]:
    """Sum the usage by the application of the job's person or shard. List other calls as "all applications"."""
    with_owner = calls.annotate(
        owner=Coalesce("job__user__application", "job__stream__application"),
        owner_name=Coalesce("job__user__application__name", "job__stream__application__name"),
    )
    rows = _by_cost(usage_by(with_owner, "owner", "owner_name"))
    return [(pk, name or "all applications", used) for pk, name, used in rows]


def _by_cost(rows: list[tuple[Any, ...]]) -> list[Any]:
    """Sort rows by cost, then by tokens, highest first."""
    return sorted(rows, key=lambda row: (-row[-1].usd, -row[-1].tokens_in, str(row[0])))


def _summary_times() -> SummaryTimes:
    newest = Summary.objects.completed().filter(generation_time_ms__isnull=False).order_by("-id")[:SUMMARIES]
    rows = newest.values_list("pk", "session__session_id", "generation_time_ms")
    took = [(pk, session, (milliseconds or 0) / 1000) for pk, session, milliseconds in rows]
    return SummaryTimes(
        number=len(took),
        mean=sum(seconds for *_, seconds in took) / len(took) if took else None,
        slowest=sorted(took, key=lambda row: -row[-1])[:SLOWEST],
        stuck=Summary.objects.stuck().count(),
    )


@dataclass(frozen=True)
class Estimate:
    """The estimated calls of one purpose."""

    purpose: str
    engine: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None  # None: the price of the model is unknown


def estimate(user: UserProfile | None = None, *, everything: bool = False) -> list[Estimate]:
    """Estimate the model calls needed to process a person's sessions, or all sessions.

    Args:
        everything: whether to include turns that were already processed. If False, estimate only pending work.
    """
    workloads = _workloads(everything=everything)
    sums = {f"{purpose}_calls": workload.calls for purpose, workload in workloads.items()}
    sums |= {f"{purpose}_tokens": workload.tokens for purpose, workload in workloads.items()}
    sessions = Session.objects.for_user(user) if user else Session.objects.all()
    estimated = sessions.filter(message_count__gt=0).aggregate(**sums)
    return [
        _estimate(purpose, workload, estimated[f"{purpose}_calls"], estimated[f"{purpose}_tokens"])
        for purpose, workload in workloads.items()
    ]


def _workloads(*, everything: bool) -> dict[str, Workload]:
    found = [(process.prompt_purpose, process.workload(everything=everything)) for process in processes()]
    workloads = {workload.purpose or purpose: workload for purpose, workload in found if workload}
    if queries := _queries(everything=everything):
        workloads[PromptResource.Purpose.RECALL_QUERY] = queries
    return workloads


def _queries(*, everything: bool) -> Workload | None:
    """Estimate the queries that an engine writes for contexts, from the past average per turn. None if unknown."""
    queries = EngineCall.objects.without_parts().filter(purpose=PromptResource.Purpose.RECALL_QUERY).count()
    turns = Session.objects.aggregate(all=Sum("message_count"))["all"]
    if not queries or not turns:
        return None
    share, shown = queries / turns, float(query.MAX_TURNS)
    calls = Sum(turns_to_estimate(UNBUILT, everything=everything)) * share
    tokens = Sum(tokens_of(turns_to_estimate(UNBUILT, everything=everything))) * share * shown
    return Workload(engine_name(settings.ENGINE.model_for_speed), calls, tokens, 20, QUERY_TOKENS)


def _estimate(purpose: str, workload: Workload, calls: float | None, tokens: float | None) -> Estimate:
    engine, number = workload.engine, round(calls or 0)
    tokens_in = round(tokens or 0) + number * workload.prompt_tokens
    latest = (
        EngineCall.objects.without_parts()
        .filter(purpose=purpose, engine=engine, ok=True)
        .order_by("-created_at", "-id")
    )
    average = latest[:LATEST_CALLS].aggregate(average=Avg("output_tokens"))["average"] or workload.usual_answer
    tokens_out = round(number * average)
    usd = Decimal(0) if engine == EXTRACTIVE else cost_of(engine, tokens_in, tokens_out)
    return Estimate(purpose, engine, number, tokens_in, tokens_out, usd)
