"""Explain incidents to operators: the cause, the evidence, a remedy, and what is missing from memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils import timezone

from moments_app.jobs.process import processes
from moments_app.models import Circuit, FailureGroup, Job
from moments_app.models.engine_call import ARCHIVE, DEFECT, MISSING_PROMPT
from moments_app.models.job import title_of

if TYPE_CHECKING:
    from moments_app.reports.incidents import Call, Incident

Texts = tuple[str, str, str]  # the cause, the evidence and the remedy

RECENTLY = timedelta(hours=1)  # period for which the share of failed calls is computed
TRY_ONE = "Then press Try one to test the change with one job."

# For each kind of error, a description of the failure and a remedy for the operator.
KINDS = {
    "credential": ("rejects the API key", "Correct the API key in the settings and restart."),
    "quota": ("has no quota left", "Raise the quota at the provider."),
    "address": ("has no such address or model", "Correct the base URL or the model in the settings and restart."),
    "rate_limited": ("is rate limited", ""),
    "timeout": ("does not answer in time", ""),
    "unavailable": ("can't be reached", ""),
    "server_error": ("answers with server errors", ""),
    "rejected": ("rejects texts", "Read the request of a failed call, or use another model."),
    "invalid_answer": ("gives invalid answers", "Read a failed answer, and change the prompt or the model."),
    "too_large": ("gives answers that are too long", "Read the request of a failed call, and change the prompt."),
    DEFECT: ("A bug in the platform", "Report this incident with its place in the code, and install the fix."),
    ARCHIVE: ("Archived messages can't be read", "Repair the archive storage, or restore the file from a backup."),
    MISSING_PROMPT: ("A prompt has no active version", "Activate a version of the prompt that the error names."),
}
DESCRIPTIONS = {kind: what for kind, (what, _) in KINDS.items()}
REMEDIES = {kind: mend for kind, (_, mend) in KINDS.items() if mend}


def describe(incident: "Incident") -> None:
    if incident.is_of_people:
        texts = _describe_people(incident)
    elif incident.kind == "other":
        texts = _describe_other(incident.failures[0])
    elif incident.kind == "queries":
        texts = _describe_queries(incident.circuits[0])
    elif incident.kind == "prompt":
        texts = _describe_prompt(incident)
    else:
        texts = _describe_engine(incident)
    incident.cause, incident.evidence, incident.remedy = texts
    incident.loss = _describe_loss(incident.by_process)


def _describe_people(incident: "Incident") -> Texts:
    failed, others = incident.failed_calls, incident.answered_calls
    evidence = []
    if incident.people == 1:
        name = next(iter(incident.names.values()), "a person")
        cause = f"Calls about {name} fail"
        if failed:
            calls = "1 call" if len(failed) == 1 else f"All {len(failed):,} calls"
            evidence.append(
                f"{calls} about {name} {'has' if len(failed) == 1 else 'have'} failed since {_clock(failed[-1].at)}."
            )
    else:
        cause = f"Calls about {incident.people:,} people fail"
    if not others:
        only = "No call about another person was answered during this time, so the engine may be the cause too."
        remedy = f"The engine is tested automatically. {_next_probe(incident.circuits)}".strip()
        return cause, " ".join([*evidence, only]), remedy
    people = len({call.person for call in others})
    whose = "1 other person was" if people == 1 else f"{people:,} other people were"
    calls = "1 call" if len(others) == 1 else f"{len(others):,} calls"
    evidence += [f"{calls} about {whose} answered during this time.", _successful_call(failed, others)]
    remedy = (
        "The engine answers other calls, so waiting doesn't help. Read the request of a failed call to find the text "
        "that causes the failures. Retract the turn with this text, or use another model. " + TRY_ONE
    )
    return cause, " ".join(evidence), remedy


def _describe_other(failure: FailureGroup) -> Texts:
    what = DESCRIPTIONS.get(failure.kind, failure.kind.replace("_", " ").capitalize())
    return f"{what}: {failure.place or failure.error}", "", f"{REMEDIES.get(failure.kind, 'Read the error.')} {TRY_ONE}"


def _describe_queries(circuit: Circuit) -> Texts:
    remedy = "A request tests the model every 30 s. If it answers already, press Try now on the circuit."
    return f"Searches use words only: {circuit.error}", "", remedy


def _describe_prompt(incident: "Incident") -> Texts:
    bad, answered = incident.failed_calls[0], incident.answered_calls
    others = sum(call.at >= incident.since for call in answered)
    before = Counter(call.number for call in answered if call.uri == bad.uri)
    cause = f"Version {bad.number} of the prompt {bad.prompt} gets invalid answers"
    evidence = f"None of its {len(incident.failed_calls):,} answers was valid."
    evidence += f" {others:,} calls with other prompts succeeded."
    remedy = REMEDIES["invalid_answer"]
    if before:
        [(number, times)] = before.most_common(1)
        remedy = f"Activate version {number}, which got {times:,} valid answers."
    return cause, evidence, f"{remedy} {TRY_ONE}"


def _describe_engine(incident: "Incident") -> Texts:
    name, bad, good = " and ".join(sorted(incident.engines)), incident.failed_calls, incident.answered_calls
    if circuits := incident.circuits:
        cause = f"{name} {DESCRIPTIONS.get(circuits[0].reason, 'fails')}"
        evidence = f"The last answer was at {_clock(good[0].at)}." if good else "No call was answered in the last day."
        return cause, evidence, _remedy_when_open(circuits)
    kinds: Counter[str] = Counter()
    for failure, jobs in incident.by_failure.items():
        kinds[failure.kind] += jobs
    [(kind, _)] = kinds.most_common(1)
    cause = f"{name} {'sometimes ' if good else ''}{DESCRIPTIONS.get(kind, 'fails')}"
    return cause, _failed_share(bad, good), _remedy_of_engine(kind, incident)


def _failed_share(bad: Sequence["Call"], good: Sequence["Call"]) -> str:
    """Return a sentence with the number of recent failed calls, and a successful call for comparison."""
    recently = timezone.now() - RECENTLY
    failed, answered = (sum(call.at >= recently for call in calls) for calls in (bad, good))
    number = failed + answered
    share = f"{failed:,} of {number:,} calls in the last hour failed." if failed else ""
    share = "The only call in the last hour failed." if failed == number == 1 else share
    return f"{share} {_successful_call(bad, good)}" if bad and good else share


def _successful_call(failed: Sequence["Call"], answered: Sequence["Call"]) -> str:
    """Return a sentence about a successful call, if possible with the same prompt as the failed ones."""
    prompts = {(call.purpose, call.version) for call in failed}
    same = next((call for call in answered if (call.purpose, call.version) in prompts), None)
    call, what = (same, "The same prompt") if same else (answered[0], "A call")
    return f"{what} for {call.name or 'another person'} was answered at {_clock(call.at)}."


def _remedy_of_engine(kind: str, incident: "Incident") -> str:
    """Return the remedy. Suggest retrying all jobs only if the engine has answered since the failures."""
    bad, good = incident.failed_calls, incident.answered_calls
    if not incident.failed:
        return "Nothing to do now: the jobs are retried automatically."
    if bad and good and good[0].at > bad[0].at:
        return "The engine has answered since then. Press Retry all."
    return f"{REMEDIES[kind]} {TRY_ONE}" if kind in REMEDIES else "Press Try one to test the engine with one job."


def _remedy_when_open(circuits: Sequence[Circuit]) -> str:
    if mend := REMEDIES.get(circuits[0].reason):
        return f"{mend} {_next_probe(circuits)}"
    return (
        f"No job is lost: all jobs run when the engine answers. {_next_probe(circuits)} If it answers already, press "
        "Try now."
    )


def _next_probe(circuits: Sequence[Circuit]) -> str:
    """Return when an engine is tested next. A test needs a held job, so without one, its time may be in the past."""
    at = min((circuit.next_probe_at for circuit in circuits), default=None)
    if at is None:
        return ""
    return f"The next test is at {_clock(at)}." if at > timezone.now() else "This engine's next job will test it."


def _describe_loss(by_process: Mapping[tuple[str, str], int]) -> str:
    """Return what is missing from memory, and whether this is permanent."""
    outputs = {process.name: process.output for process in processes()}
    lost, late = Counter[str](), Counter[str]()
    for (process, status), jobs in by_process.items():
        (lost if status == Job.Status.FAILED else late)[outputs.get(process) or title_of(process)] += jobs
    sentences = [f"Unless the failed jobs are retried, these stay missing: {_listed(lost)}."] if lost else []
    if late:
        sentences.append(f"These are late, and will be retried automatically: {_listed(late)}.")
    return " ".join(sentences)


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{what} ({jobs:,} {'job' if jobs == 1 else 'jobs'})" for what, jobs in counted.most_common())


def _clock(time: datetime) -> str:
    return f"{time:%H:%M:%S} UTC" if timezone.now() - time < timedelta(hours=12) else f"{time:%-d %b %H:%M} UTC"
