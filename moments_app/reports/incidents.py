"""`incidents`: why work is not done, once for each cause, with what distinguishes it from calls that succeed.

Failed and waiting jobs belong to one incident if they share a person, a version of a prompt, an engine or a place in
the code. Which of these it is, the calls say: if the engine answers others in the meantime, the engine is not the
cause. An incident lasts until its work is done.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Max, Min
from django.db.models.functions import Coalesce
from django.utils import timezone

from moments_app.engines.interface import ABOUT, About
from moments_app.jobs.process import processes
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.circuit import is_one_endpoint
from moments_app.models.failure import ARCHIVE, DEFECT, MISSING_PROMPT
from sessions_app.models import UserProfile

FAILED_READ, ANSWERED_READ = 500, 1_500  # the newest calls, which are compared
JOBS_READ = 20_000  # groups of jobs, by failure and person; if there are more, the numbers are minimums
WITHIN, RECENTLY = timedelta(days=1), timedelta(hours=1)  # in which calls are read; in which their share is told
LONE_FAILURES = 3  # calls about a person that fail, with answers to others in between, before they are the cause
APART = 3  # people with an incident of their own; more of them share one
EARLIEST = datetime.min.replace(tzinfo=UTC)
NAMED = 3  # people whom an incident names
TRY_ONE = "Then press Try one: it tests this with one job."

WHAT = {
    "credential": "rejects the API key",
    "quota": "has no quota left",
    "address": "has no such address or model",
    "rate_limited": "is rate limited",
    "timeout": "does not answer in time",
    "unavailable": "can't be reached",
    "server_error": "answers with server errors",
    "rejected": "rejects texts",
    "invalid_answer": "gives invalid answers",
    "too_large": "gives answers that are too long",
}
OTHER_WHAT = {
    DEFECT: "A bug in the platform",
    ARCHIVE: "Archived messages can't be read",
    MISSING_PROMPT: "A prompt has no active version",
}
MEND = {
    "credential": "Correct the API key in the settings and restart.",
    "quota": "Raise the quota at the provider.",
    "address": "Correct the base URL or the model in the settings and restart.",
    "rejected": "Read the request of a failed call, or use another model.",
    "invalid_answer": "Read a failed answer, and change the prompt or the model.",
    "too_large": "Read the request of a failed call, and change the prompt.",
    DEFECT: "Report the place, and install the fix.",
    ARCHIVE: "Repair the storage of archives, or restore the file from a backup.",
    MISSING_PROMPT: "Activate a version of the prompt that the error names.",
}

Key = tuple[Any, ...]


class Call(NamedTuple):
    """The columns of a call that incidents are computed from."""

    engine: str
    ok: bool
    kind: str
    person: int | None
    purpose: str
    version: int | None
    uri: str | None
    number: int | None
    at: datetime


@dataclass
class Incident:
    """One cause, and the work that is not done because of it.

    Args:
        cause: a heading that names the cause.
        since: when the first job failed, or had to wait.
        people: number of people whose work is not done.
        names: some of them, by primary key.
        failed: jobs that have used up their attempts.
        waiting: jobs that are retried automatically.
        evidence: what distinguishes its calls from those that succeed.
        remedy: what to do. It suggests to retry everything only if a call like those that failed was answered since.
        loss: what is missing from memory, and whether it stays so if nobody acts.
        by_failure: number of its jobs by the failures that it consists of, the largest first.
        circuits: open ones that belong to it.
    """

    cause: str
    since: datetime
    people: int
    names: dict[int, str]
    failed: int
    waiting: int
    evidence: str
    remedy: str
    loss: str
    by_failure: dict[FailureGroup, int]
    circuits: list[Circuit]

    @property
    def failures(self) -> list[FailureGroup]:
        return list(self.by_failure)

    @property
    def alone(self) -> "list[Incident]":
        """The incident as the only one of a list."""
        return [self]

    @property
    def is_muted(self) -> bool:
        """True if an operator muted all its causes. An open circuit that holds everybody can't be muted."""
        holds_all = any(circuit.holds_all for circuit in self.circuits)
        return bool(self.failures) and not holds_all and all(failure.muted_at for failure in self.failures)

    def has(self, failure: FailureGroup) -> bool:
        """Return whether a failure belongs to it, itself or by the circuit that it opened."""
        cause = failure.engine, failure.kind
        return failure in self.failures or any((each.engine, each.reason) == cause for each in self.circuits)

    @property
    def jobs(self) -> int:
        return self.failed + self.waiting

    @property
    def more_people(self) -> int:
        """Number of people whom it doesn't name."""
        return self.people - len(self.names)


def incidents(circuits: Sequence[Circuit] | None = None) -> list[Incident]:
    """Return all incidents: those that need an operator first, muted ones last.

    Args:
        circuits: open circuits that the reader may see; by default all.
    """
    shown = list(Circuit.objects.open() if circuits is None else circuits)
    groups = FailureGroup.objects.filter(pk__in=Job.objects.stalled().values("failure")).in_bulk()
    if not groups and not shown:
        return []
    found = _Found(groups, shown)
    made = [found.incident(key, work) for key, work in found.sorted_out().items()]
    return sorted(made, key=lambda incident: (incident.is_muted, -incident.failed, -incident.jobs, incident.since))


def incident_of(failure: FailureGroup, circuits: Sequence[Circuit] | None = None) -> Incident | None:
    """Return the incident that a failure belongs to, the one with most jobs; None: no work waits because of it."""
    ours = [incident for incident in incidents(circuits) if incident.has(failure)]
    return max(ours, key=lambda incident: incident.jobs, default=None)


@dataclass
class _Work:
    """Jobs that belong together."""

    number: Counter[tuple[str, str]] = field(default_factory=Counter)  # by process and status
    by_failure: Counter[int] = field(default_factory=Counter)
    people: Counter[int] = field(default_factory=Counter)
    since: list[datetime] = field(default_factory=list)
    circuits: list[Circuit] = field(default_factory=list)


class _Found:
    """The rows that incidents are computed from, read by a constant number of statements."""

    def __init__(self, groups: dict[int, FailureGroup], circuits: list[Circuit]) -> None:
        self._groups, self._circuits = groups, circuits
        engines = {group.engine for group in groups.values() if group.engine} | {c.engine for c in circuits}
        self._calls = _newest_calls(engines)
        self._answered = _last_answers({call.person for call in self._calls if call.person and not call.ok})
        self._names: dict[int, str] = {}
        self._lone: set[tuple[str, int | None]] = set()  # engines, and people who are the cause of what fails there

    # --- sorting jobs into incidents ---

    def sorted_out(self) -> dict[Key, _Work]:
        """Return the jobs of each incident."""
        rows = _stalled()
        self._lone = {
            (engine, person)
            for (engine, person), has_failed in _engines_and_people(rows, self._groups).items()
            if self._is_lone(engine, person, has_failed=has_failed)
        }
        self._lone |= {(c.engine, c.failing[0]) for c in self._circuits if not c.holds_all and c.failing}
        works: dict[Key, _Work] = defaultdict(_Work)
        is_many = len({person for _, person in self._lone}) > APART
        for row in rows:
            group = self._groups.get(row["failure"])
            if group is None:  # it failed since the groups were read
                continue
            person = row["user"]
            key = ("people" if is_many else "person", None if is_many else person)
            work = works[key if (group.engine, person) in self._lone else self._key(group)]
            work.number[group.process, row["status"]] += row["number"]
            work.by_failure[group.pk] += row["number"]
            work.since.append(row["since"])
            if person:
                work.people[person] += row["number"]
        self._add_circuits(works, "people" if is_many else "person")
        self._name(works)
        return works

    def _add_circuits(self, works: dict[Key, _Work], person: str) -> None:
        held = _held_by(self._circuits)
        for circuit in self._circuits:
            lone = circuit.failing[0] if not circuit.holds_all and circuit.failing else 0
            own = (person, lone if person == "person" else None)
            work = works[own if lone > 0 else self._key_of_circuit(circuit)]
            work.circuits.append(circuit)
            work.since.append(circuit.since)
            for row in held.get(circuit.pk, ()):
                work.number[row["process"], Job.Status.QUEUED] += row["number"]
                if row["user"]:
                    work.people[row["user"]] += row["number"]
            if lone > 0:
                work.people[lone] += 0

    def _key(self, group: FailureGroup) -> Key:
        if not group.engine:
            return "other", group.kind, group.place
        about = ABOUT.get(group.kind, About.NETWORK)
        if about == About.ANSWER and (version := self._bad_version(group)):
            return "prompt", version
        return self._key_of_engine(group.engine, group.kind)

    def _key_of_circuit(self, circuit: Circuit) -> Key:
        if circuit.is_of_queries:
            return "queries", circuit.engine
        return self._key_of_engine(circuit.engine, circuit.reason)

    def _key_of_engine(self, engine: str, kind: str) -> Key:
        """Return one key for an endpoint that is unavailable, whatever it is asked for."""
        about = ABOUT.get(kind, About.NETWORK)
        is_away = any(c.engine == engine and c.is_away for c in self._circuits)
        if about in (About.LOAD, About.NETWORK):
            return "engine", About.NETWORK, "" if is_away and is_one_endpoint() else engine
        return "engine", about, engine

    # --- what the calls say ---

    def _is_lone(self, engine: str, person: int, *, has_failed: bool) -> bool:
        """Return whether calls about a person fail, and the engine answers others in between."""
        streak = self._streak(person, [engine])
        enough = 2 if has_failed else LONE_FAILURES
        if len(streak) < enough:
            return False
        return any(call.at <= streak[0].at for call in self._others(person, [engine], streak[-1].at))

    def _streak(self, person: int, engines: Iterable[str]) -> list[Call]:
        """Return the failed calls about a person since the last that was answered, newest first."""
        return [
            call
            for call in self._calls
            if call.person == person and call.engine in engines and not call.ok
            if call.at > self._answered.get((call.engine, person), EARLIEST)
        ]

    def _others(self, person: int, engines: Iterable[str], since: datetime) -> list[Call]:
        """Return the answered calls about other people, newest first."""
        return [
            call
            for call in self._calls
            if call.ok and call.at >= since and call.person not in (None, person) and call.engine in engines
        ]

    def _bad_version(self, group: FailureGroup) -> int | None:
        """Return the version of a prompt to which all failed answers belong, if others are answered and it is not."""
        failed = {c.version for c in self._calls if not c.ok and c.engine == group.engine and c.kind == group.kind}
        answered = {c.version for c in self._calls if c.ok and c.engine == group.engine}
        [version] = failed if len(failed) == 1 else [None]
        return version if version not in answered and answered else None

    # --- names ---

    def _name(self, works: dict[Key, _Work]) -> None:
        """Read the names of the people who may be named."""
        wanted = {person for work in works.values() for person, _ in work.people.most_common(NAMED)}
        wanted |= {call.person for call in self._calls if call.ok and call.person}
        people = UserProfile.objects.filter(pk__in=wanted)
        self._names = dict(people.values_list("pk", "user_id"))

    def _called(self, person: int | None) -> str:
        return self._names.get(person or 0, "another person")

    # --- incidents ---

    def incident(self, key: Key, work: _Work) -> Incident:
        """Return an incident in words."""
        failures = [self._groups[pk] for pk, _ in work.by_failure.most_common()]
        failed = sum(number for (_, status), number in work.number.items() if status == Job.Status.FAILED)
        named = {pk: self._names[pk] for pk, _ in work.people.most_common(NAMED) if pk in self._names}
        since = min(work.since)
        cause, evidence, remedy = self._told(key, work, failures, since, failed)
        return Incident(
            cause=cause,
            since=since,
            people=len(work.people),
            names=named,
            failed=failed,
            waiting=work.number.total() - failed,
            evidence=evidence,
            remedy=remedy,
            loss=_loss(work.number),
            by_failure={self._groups[pk]: jobs for pk, jobs in work.by_failure.most_common()},
            circuits=work.circuits,
        )

    def _told(
        self, key: Key, work: _Work, failures: list[FailureGroup], since: datetime, failed: int
    ) -> tuple[str, str, str]:
        kind = key[0]
        if kind in ("person", "people"):
            return self._told_of_people(work, failures)
        if kind == "other":
            return _cause_of_other(failures), "", f"{MEND.get(key[1], 'Read the error.')} {TRY_ONE}"
        if kind == "queries":
            [circuit] = work.circuits
            remedy = "A request tests the model every 30 s. If it is back already, press Try now on the circuit."
            return f"Searches use words only: {circuit.error}", "", remedy
        if kind == "prompt":
            return self._told_of_prompt(key[1], since)
        return self._told_of_engine(work, failures, failed)

    def _told_of_people(self, work: _Work, failures: list[FailureGroup]) -> tuple[str, str, str]:
        engines = {failure.engine for failure in failures} | {circuit.engine for circuit in work.circuits}
        [(person, _)] = work.people.most_common(1)
        streak = self._streak(person, engines)
        others = self._others(person, engines, streak[-1].at) if streak else []
        if len(work.people) == 1:
            cause = f"Calls about {self._called(person)} fail"
            calls = "1 call" if len(streak) == 1 else f"All {len(streak):,} calls"
            evidence = f"{calls} about {self._called(person)} failed since {_at(streak[-1].at)}." if streak else ""
        else:
            cause, evidence = f"Calls about {len(work.people):,} people fail", ""
        if not others:
            evidence += " No call about another person was answered in this time, so the engine may be the cause too."
            return cause, evidence.strip(), f"The engine is tested automatically. {_next_probe(work.circuits)}".strip()
        people = len({call.person for call in others})
        whose = "1 other person was" if people == 1 else f"{people:,} other people were"
        calls = "1 call" if len(others) == 1 else f"{len(others):,} calls"
        evidence += f" {calls} about {whose} answered in this time. {self._tested(streak, others)}"
        remedy = (
            "Don't wait for the engine, because it answers others. Read the request of a failed call to find the text. "
            "Retract the turn, or use another model. " + TRY_ONE
        )
        return cause, evidence.strip(), remedy

    def _tested(self, failed: Sequence[Call], answered: Sequence[Call]) -> str:
        """Name a call that was answered, if possible with the same prompt as those that failed."""
        prompts = {(call.purpose, call.version) for call in failed}
        same = next((call for call in answered if (call.purpose, call.version) in prompts), None)
        call, what = (same, "The same prompt") if same else (answered[0], "A call")
        return f"{what} for {self._called(call.person)} was answered at {_at(call.at)}."

    def _told_of_prompt(self, version: int, since: datetime) -> tuple[str, str, str]:
        bad = next(call for call in self._calls if call.version == version)
        failed = sum(not call.ok for call in self._calls if call.version == version)
        others = [call for call in self._calls if call.ok and call.at >= since]
        before = Counter(call.number for call in self._calls if call.ok and call.uri == bad.uri)
        cause = f"Version {bad.number} of the prompt {bad.uri} gets invalid answers"
        evidence = f"None of its {failed:,} answers was valid. {len(others):,} calls with other prompts were answered."
        if before:
            [(number, times)] = before.most_common(1)
            remedy = f"Activate version {number}, which got {times:,} valid answers. {TRY_ONE}"
        else:
            remedy = f"{MEND['invalid_answer']} {TRY_ONE}"
        return cause, evidence, remedy

    def _told_of_engine(self, work: _Work, failures: list[FailureGroup], failed: int) -> tuple[str, str, str]:
        engines = sorted({failure.engine for failure in failures} | {circuit.engine for circuit in work.circuits})
        name = " and ".join(engines)
        calls = [c for c in self._calls if c.engine in engines and (c.engine, c.person) not in self._lone]
        bad, good = ([call for call in calls if call.ok == ok] for ok in (False, True))
        if work.circuits:
            cause = f"{name} {WHAT.get(work.circuits[0].reason, 'fails')}"
            evidence = f"The last answer was at {_at(good[0].at)}." if good else "No call was answered in the last day."
            return cause, evidence, _remedy_when_open(work.circuits)
        kinds = Counter({failure.kind: work.by_failure[failure.pk] for failure in failures})
        [(kind, _)] = kinds.most_common(1)
        cause = f"{name} {'sometimes ' if good else ''}{WHAT.get(kind, 'fails')}"
        return cause, self._share(bad, good), _remedy_of_engine(kind, failed, bad, good)

    def _share(self, bad: list[Call], good: list[Call]) -> str:
        """Return how many of the recent calls failed, with one that was answered."""
        recently = timezone.now() - RECENTLY
        failed, answered = (sum(call.at >= recently for call in calls) for calls in (bad, good))
        number = failed + answered
        share = f"{failed:,} of {number:,} calls in the last hour failed." if failed else ""
        share = "The only call in the last hour failed." if failed == number == 1 else share
        return f"{share} {self._tested(bad, good)}" if bad and good else share


def _remedy_of_engine(kind: str, failed: int, bad: list[Call], good: list[Call]) -> str:
    """Suggest to retry all jobs only if the engine has answered since."""
    if not failed:
        return "Nothing to do now: the jobs are retried automatically."
    if bad and good and good[0].at > bad[0].at:
        return "The engine has answered since then. Press Retry all."
    return f"{MEND[kind]} {TRY_ONE}" if kind in MEND else "Press Try one to test the engine with one job."


def _remedy_when_open(circuits: list[Circuit]) -> str:
    if mend := MEND.get(circuits[0].reason):
        return f"{mend} {_next_probe(circuits)}"
    return f"No job is lost: all run when it answers. {_next_probe(circuits)} If it is back already, press Try now."


def _next_probe(circuits: list[Circuit]) -> str:
    at = min((circuit.next_probe_at for circuit in circuits), default=None)
    return f"The next test is at {_at(at)}." if at else ""


def _cause_of_other(failures: list[FailureGroup]) -> str:
    [first, *_] = failures
    what = OTHER_WHAT.get(first.kind, first.kind.replace("_", " ").capitalize())
    return f"{what}: {first.place or first.error}"


def _loss(number: Counter[tuple[str, str]]) -> str:
    """Return what is missing, and whether it stays so."""
    makes = {process.name: process.makes or process.name.replace("_", " ") for process in processes()}

    def listed(*, is_lost: bool) -> str:
        counted: Counter[str] = Counter()
        for (process, status), jobs in number.items():
            if is_lost == (status == Job.Status.FAILED):
                counted[makes.get(process, process)] += jobs
        return ", ".join(f"{what} ({jobs:,} {'job' if jobs == 1 else 'jobs'})" for what, jobs in counted.most_common())

    lost, late = listed(is_lost=True), listed(is_lost=False)
    told = [f"If nobody acts, these stay missing: {lost}."] if lost else []
    if late:
        told.append(f"These are late, and are retried automatically: {late}.")
    return " ".join(told)


def _at(time: datetime) -> str:
    return f"{time:%H:%M:%S} UTC" if timezone.now() - time < timedelta(hours=12) else f"{time:%-d %b %H:%M} UTC"


# --- reading ---


def _newest_calls(engines: Iterable[str]) -> list[Call]:
    """Return the newest calls of engines that failed and that were answered, newest first."""
    if not engines:
        return []
    calls = EngineCall.objects.filter(engine__in=engines, created_at__gte=timezone.now() - WITHIN)
    fields = (
        "engine",
        "ok",
        "error_kind",
        "job__user",
        "purpose",
        "prompt_version",
        "prompt_version__resource__uri",
        "prompt_version__number",
        "created_at",
    )
    newest = calls.order_by("-created_at", "-id").values_list(*fields)
    failed, answered = newest.filter(ok=False)[:FAILED_READ], newest.filter(ok=True)[:ANSWERED_READ]
    return sorted((Call(*row) for row in failed.union(answered, all=True)), key=lambda call: call.at, reverse=True)


def _last_answers(people: set[int]) -> dict[tuple[str, int], datetime]:
    """Return when calls about people were answered last, by engine and person."""
    calls = EngineCall.objects.filter(job__user__in=people, ok=True, created_at__gte=timezone.now() - WITHIN)
    last: Any = calls.order_by().values("engine", "job__user").annotate(at=Max("created_at"))
    return {(row["engine"], row["job__user"]): row["at"] for row in last}


def _stalled() -> list[dict[str, Any]]:
    """Return the jobs that failed or wait because of a failure, by failure, person and status; most jobs first."""
    groups = Job.objects.stalled().order_by().values("failure", "user", "status")
    since = Min(Coalesce("held_since", "finished_at", "queued_at"))
    counted: Any = groups.annotate(number=Count("pk"), since=since)
    return list(counted.order_by("-number", "user")[:JOBS_READ])


def _held_by(circuits: Sequence[Circuit]) -> dict[int, list[dict[str, Any]]]:
    """Return the jobs that circuits hold and that have not failed themselves, by circuit."""
    if not circuits:
        return {}
    held = Job.objects.held().filter(circuit__in=circuits, failure=None).order_by().values("circuit", "process", "user")
    counted: Any = held.annotate(number=Count("pk"))
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in counted[:JOBS_READ]:
        found[row["circuit"]].append(row)
    return found


def _engines_and_people(rows: list[dict[str, Any]], groups: dict[int, FailureGroup]) -> dict[tuple[str, int], bool]:
    """Return each person with jobs that an engine failed, and whether one of them has used up its attempts."""
    found: dict[tuple[str, int], bool] = {}
    for row in rows:
        group = groups.get(row["failure"])
        if group and group.engine and row["user"]:
            key = group.engine, row["user"]
            found[key] = found.get(key, False) or row["status"] == Job.Status.FAILED
    return found
