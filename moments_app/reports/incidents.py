"""Incidents: unfinished work, grouped by its cause.

Failed and waiting jobs belong to one incident if they share a person, a version of a prompt, an engine or a place in
the code. A comparison of failed and successful calls determines the cause. For example, if other calls to the engine
succeed in the meantime, the engine is not the cause. An incident lasts until its work is done.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import attrgetter, or_
from typing import Any, NamedTuple

from django.db.models import Count, Max, Min, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from moments_app.engines.interface import FAILURE_CAUSES, FailureCause
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.circuit import is_one_endpoint
from moments_app.models.job import JobQuerySet
from moments_app.reports.incident_words import describe

MAX_FAILED_CALLS, MAX_ANSWERED_CALLS = 500, 1_500  # maximum newest calls to compare
MAX_JOB_GROUPS = 20_000  # maximum groups of jobs by failure and person; if there are more, counts are too low
PERIOD = timedelta(days=1)  # age of the oldest calls to compare
SINGLE_PERSON_FAILURES = 3  # minimum failed calls for a person to be the cause, if calls about others succeed
MAX_SEPARATE = 3  # maximum people with separate incidents; if there are more, they share one
MAX_NAMES = 3  # maximum people to list by name
EARLIEST = datetime.min.replace(tzinfo=UTC)

Parts = tuple[str, ...]  # the kind of a cause, and its value
Row = dict[str, Any]


class Call(NamedTuple):
    """The columns of a call from which incidents are computed."""

    engine: str
    ok: bool
    kind: str
    person: int | None
    name: str | None
    purpose: str
    version: int | None
    uri: str | None
    prompt: str | None
    number: int | None
    at: datetime


@dataclass
class Incident:
    """A cause, and the unfinished work because of it.

    Args:
        single_person: for each engine, the people who cause its failures. Their jobs belong to no other incident.
        answered_calls: successful calls to compare with the failed ones. Both lists start with the newest call.
    """

    parts: Parts
    since: datetime  # when the first job failed or started to wait
    single_person: Mapping[str, set[int]]
    # Numbers of jobs:
    by_process: Counter[tuple[str, str]] = field(default_factory=Counter)  # by process and status
    by_failure: Counter[FailureGroup] = field(default_factory=Counter)
    by_person: Counter[int] = field(default_factory=Counter)
    user_ids: dict[int, str] = field(default_factory=dict)
    circuits: list[Circuit] = field(default_factory=list)  # the open ones
    failed_calls: list[Call] = field(default_factory=list)
    answered_calls: list[Call] = field(default_factory=list)
    # Texts set by `describe`:
    cause: str = ""
    evidence: str = ""
    remedy: str = ""
    loss: str = ""

    @property
    def key(self) -> str:
        return ":".join(self.parts)

    @property
    def kind(self) -> str:
        return self.parts[0]

    @property
    def is_of_people(self) -> bool:
        return self.kind in ("person", "people")

    @property
    def failures(self) -> list[FailureGroup]:
        """The failures of the incident, sorted by their number of jobs, highest first."""
        return [failure for failure, _ in self.by_failure.most_common()]

    @property
    def engines(self) -> set[str]:
        return {failure.engine for failure in self.by_failure} | {circuit.engine for circuit in self.circuits}

    @property
    def is_muted(self) -> bool:
        """True if all failures are muted. An incident whose circuit holds all jobs can't be muted."""
        if not self.by_failure or any(circuit.holds_all for circuit in self.circuits):
            return False
        return all(self.key in failure.muted_causes for failure in self.by_failure)

    @property
    def failed(self) -> int:
        return sum(jobs for (_, status), jobs in self.by_process.items() if status == Job.Status.FAILED)

    @property
    def waiting(self) -> int:
        return self.jobs - self.failed

    @property
    def jobs(self) -> int:
        return self.by_process.total()

    @property
    def people(self) -> int:
        return len(self.by_person)

    @property
    def names(self) -> dict[int, str]:
        """The `user_id` of the people with the most jobs, keyed by primary key."""
        return {pk: self.user_ids[pk] for pk, _ in self.by_person.most_common(MAX_NAMES) if pk in self.user_ids}

    @property
    def more_people(self) -> int:
        return self.people - len(self.names)

    def add(self, process: str, row: Row) -> None:
        self.by_process[process, row["status"]] += row["number"]
        if person := row["user"]:
            self.by_person[person] += row["number"]
            self.user_ids[person] = row["user__user_id"]

    def stalled(self) -> JobQuerySet:
        """Return the incident's jobs that failed or wait for a retry, except jobs that only wait for circuits."""
        jobs = Job.objects.stalled().filter(failure__in=list(self.by_failure))
        conditions = (Q(failure__engine=engine, user__in=people) for engine, people in self.single_person.items())
        of_single_people = reduce(or_, conditions, Q(pk__in=()))
        if self.is_of_people:
            return jobs.filter(of_single_people, user__in=list(self.by_person))
        return jobs.exclude(of_single_people)


def incidents(circuits: Sequence[Circuit] | None = None) -> list[Incident]:
    """Return all incidents. Those with the most failed jobs come first, and muted ones last.

    Args:
        circuits: the open circuits that the operator may see; None: all.
    """
    shown = list(Circuit.objects.open() if circuits is None else circuits)
    groups = FailureGroup.objects.filter(pk__in=Job.objects.stalled().values("failure")).in_bulk()
    if not groups and not shown:
        return []
    found = _Grouping(groups, shown).incidents()
    return sorted(found, key=lambda incident: (incident.is_muted, -incident.failed, -incident.jobs, incident.since))


def incidents_of(failure: FailureGroup, circuits: Sequence[Circuit] | None = None) -> list[Incident]:
    """Return the incidents with this failure or with a circuit opened by it. Those with the most jobs come first."""
    cause = failure.engine, failure.kind
    found = [
        incident
        for incident in incidents(circuits)
        if failure in incident.by_failure or any((each.engine, each.reason) == cause for each in incident.circuits)
    ]
    return sorted(found, key=attrgetter("jobs"), reverse=True)


class _Grouping:
    """The rows from which incidents are computed, read by a constant number of queries."""

    def __init__(self, groups: dict[int, FailureGroup], circuits: list[Circuit]) -> None:
        self._groups, self._circuits = groups, circuits
        self._rows = [row for row in _stalled() if row["failure"] in groups]  # others failed after the groups were read
        self._calls = _Calls({group.engine for group in groups.values()} | {circuit.engine for circuit in circuits})
        self._single_people = self._find_single_people()
        self._is_many = len(set().union(*self._single_people.values())) > MAX_SEPARATE
        self._by_cause: dict[Parts, Incident] = {}

    def incidents(self) -> list[Incident]:
        for row in self._rows:
            group = self._groups[row["failure"]]
            incident = self._incident(self._parts(group.engine, group.kind, row["user"], group.place), row["since"])
            incident.by_failure[group] += row["number"]
            incident.add(group.process, row)
        held = _held_by(self._circuits)
        for circuit in self._circuits:
            person = _person_of(circuit)
            parts = self._parts(circuit.engine, circuit.reason, person)
            incident = self._incident(("queries", circuit.engine) if circuit.is_of_queries else parts, circuit.since)
            incident.circuits.append(circuit)
            for row in held[circuit.pk]:
                incident.add(row["process"], row)
            if person:
                incident.by_person[person] += 0
        for incident in self._by_cause.values():
            self._add_calls(incident)
            describe(incident)
        return list(self._by_cause.values())

    def _find_single_people(self) -> dict[str, set[int]]:
        """For each engine, return the people whose calls fail while other people's calls succeed."""
        has_failed: dict[tuple[str, int], bool] = {}  # whether one of their jobs has used up its attempts
        for row in self._rows:
            key = self._groups[row["failure"]].engine, row["user"]
            has_failed[key] = has_failed.get(key, False) or row["status"] == Job.Status.FAILED
        single_person: dict[str, set[int]] = defaultdict(set)
        for (engine, person), failed in has_failed.items():
            if self._calls.is_single_cause(engine, person, at_least=2 if failed else SINGLE_PERSON_FAILURES):
                single_person[engine].add(person)
        for circuit in self._circuits:
            if person := _person_of(circuit):
                single_person[circuit.engine].add(person)
        return single_person

    def _incident(self, parts: Parts, since: datetime) -> Incident:
        incident = self._by_cause.setdefault(parts, Incident(parts, since, self._single_people))
        incident.since = min(incident.since, since)
        return incident

    def _parts(self, engine: str, kind: str, person: int | None, place: str = "") -> Parts:
        """Return what identifies a cause: a place in the code, a person, a version of a prompt, or an engine."""
        if not engine:
            return "other", kind, place
        if person in self._single_people.get(engine, ()):
            return ("people",) if self._is_many else ("person", str(person))
        cause = FAILURE_CAUSES.get(kind, FailureCause.NETWORK)
        if cause == FailureCause.ANSWER and (version := self._calls.bad_version(engine, kind)):
            return "prompt", str(version)
        # An unreachable endpoint is one cause, for all kinds of calls.
        if cause in (FailureCause.LOAD, FailureCause.NETWORK):
            is_unreachable = any(c.engine == engine and c.is_unreachable for c in self._circuits)
            return "engine", FailureCause.NETWORK, "" if is_unreachable and is_one_endpoint() else engine
        return "engine", cause, engine

    def _add_calls(self, incident: Incident) -> None:
        """Add the failed calls of an incident, and successful calls for comparison."""
        calls, engines = self._calls, incident.engines
        if incident.is_of_people:
            [(person, _)] = incident.by_person.most_common(1)
            incident.failed_calls = calls.streak(person, engines)
            if incident.failed_calls:
                answered = (call for call in calls.answered if call.at >= incident.failed_calls[-1].at)
                others = (call for call in answered if call.person not in (None, person))
                incident.answered_calls = [call for call in others if call.engine in engines]
        elif incident.kind == "prompt":
            incident.failed_calls = [call for call in calls.failed if str(call.version) == incident.parts[1]]
            incident.answered_calls = calls.answered
        else:
            single_person = {(engine, person) for engine in engines for person in self._single_people.get(engine, ())}
            incident.failed_calls, incident.answered_calls = (
                [call for call in some if call.engine in engines and (call.engine, call.person) not in single_person]
                for some in (calls.failed, calls.answered)
            )


class _Calls:
    """The newest calls to some engines, newest first."""

    def __init__(self, engines: set[str]) -> None:
        calls = _newest_calls(engines)
        self.failed = [call for call in calls if not call.ok]
        self.answered = [call for call in calls if call.ok]
        last = _last_answers({call.person for call in self.failed if call.person})
        self._streaks: dict[tuple[str, int], list[Call]] = defaultdict(list)
        self._failed_versions: dict[tuple[str, str], set[int | None]] = defaultdict(set)
        for call in self.failed:
            self._failed_versions[call.engine, call.kind].add(call.version)
            if call.person and call.at > last.get((call.engine, call.person), EARLIEST):
                self._streaks[call.engine, call.person].append(call)
        self._answered_versions: dict[str, set[int | None]] = defaultdict(set)
        self._answered_at: dict[str, list[datetime]] = defaultdict(list)  # times of calls about people, oldest first
        for call in reversed(self.answered):
            self._answered_versions[call.engine].add(call.version)
            if call.person:
                self._answered_at[call.engine].append(call.at)

    def is_single_cause(self, engine: str, person: int, *, at_least: int) -> bool:
        """Return whether a person's last calls all failed while calls about other people succeeded in between."""
        streak, answered = self._streaks.get((engine, person), []), self._answered_at[engine]
        if len(streak) < at_least:
            return False
        first = bisect_left(answered, streak[-1].at)  # successful calls from here on are about other people
        return first < len(answered) and answered[first] <= streak[0].at

    def streak(self, person: int, engines: Iterable[str]) -> list[Call]:
        """Return the failed calls about a person since the last successful one."""
        calls = (call for engine in engines for call in self._streaks.get((engine, person), ()))
        return sorted(calls, key=attrgetter("at"), reverse=True)

    def bad_version(self, engine: str, kind: str) -> int | None:
        """Return the prompt version of all failed answers if calls succeed only with other versions, or None."""
        failed, answered = self._failed_versions[engine, kind], self._answered_versions[engine]
        [version] = failed if len(failed) == 1 else [None]
        return version if answered and version not in answered else None


def _person_of(circuit: Circuit) -> int:
    """Return the primary key of the person whose jobs a circuit holds; 0 if it doesn't hold one person's jobs."""
    return 0 if circuit.holds_all or not circuit.failing else max(circuit.failing[0], 0)  # keys of shards are negative


# --- reading ---


def _newest_calls(engines: set[str]) -> list[Call]:
    """Return the newest failed and successful calls of engines, newest first."""
    calls = EngineCall.objects.filter(engine__in=engines, created_at__gte=timezone.now() - PERIOD)
    fields = ("engine", "ok", "error_kind", "job__user", "job__user__user_id", "purpose")
    resource = ("prompt_version__resource__uri", "prompt_version__resource__name")
    prompt = ("prompt_version", *resource, "prompt_version__number")
    newest = calls.order_by("-created_at", "-id").values_list(*fields, *prompt, "created_at")
    failed, answered = newest.filter(ok=False)[:MAX_FAILED_CALLS], newest.filter(ok=True)[:MAX_ANSWERED_CALLS]
    return sorted(map(Call._make, failed.union(answered, all=True)), key=attrgetter("at"), reverse=True)


def _last_answers(people: set[int]) -> dict[tuple[str, int], datetime]:
    """Return the times of the last successful calls about people, keyed by engine and person."""
    calls = EngineCall.objects.filter(job__user__in=people, ok=True, created_at__gte=timezone.now() - PERIOD)
    last: Any = calls.order_by().values("engine", "job__user").annotate(at=Max("created_at"))
    return {(row["engine"], row["job__user"]): row["at"] for row in last}


def _stalled() -> list[Row]:
    """Count jobs that failed or wait for a retry, by failure, person and status, highest count first."""
    groups = Job.objects.stalled().order_by().values("failure", "user", "user__user_id", "status")
    since = Min(Coalesce("held_since", "finished_at", "queued_at"))
    counted: Any = groups.annotate(number=Count("pk"), since=since)
    return list(counted.order_by("-number", "user")[:MAX_JOB_GROUPS])


def _held_by(circuits: Sequence[Circuit]) -> dict[int, list[Row]]:
    """Count the jobs that circuits hold, except failed ones, keyed by circuit."""
    found: dict[int, list[Row]] = defaultdict(list)
    if circuits:
        held = Job.objects.held().filter(circuit__in=circuits, failure=None).order_by()
        counted: Any = held.values("circuit", "process", "user", "user__user_id", "status").annotate(number=Count("pk"))
        for row in counted[:MAX_JOB_GROUPS]:
            found[row["circuit"]].append(row)
    return found
