"""The sessions and streams that prompts are tried on: one that an operator chooses, or a sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from memory_extras.lab.models import Probe, PromptTrial, PromptTrialQuerySet
from memory_extras.lab.probes.trial import TriedProbe
from memory_extras.lab.trials.parts import Side, is_about_streams
from memory_extras.lab.trials.try_prompt import Trial, TrialAnswer
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.models.engine_call import cost_of
from moments_app.operator.diff import DiffPart, word_diff
from sessions_app.admin.base import prefix_search
from sessions_app.limited_operators import scope_key, unlimited
from sessions_app.models import Session

SUBJECTS = 8  # maximum number in the list; operators find others by typing
SIZES = (3, 5, 10)
SAMPLED_NEWEST = 200  # number of the newest sessions or streams that the sample is chosen from
SHORT = 24  # number of turns; sessions with fewer are chosen last


@dataclass(frozen=True)
class Outcome:
    """The result of one item of the sample.

    Args:
        parts: Both texts, with the differences marked. One text if there is no other version.
        added: The number of words that are only in the result of the tried version.
        removed: The number of words that are only in the result of the active version.
    """

    parts: list[DiffPart]
    added: int
    removed: int

    @property
    def differs(self) -> bool:
        return bool(self.added or self.removed)


def sample_of(resource: PromptResource, size: int) -> list[int]:
    """Choose a prompt's sample: the latest item of each person. Prefer people with probes, and long items."""
    newest = _streams() if is_about_streams(resource) else _sessions()
    people = {one.user_id for one in newest}
    asked = set(Probe.objects.filter(user__in=people).values_list("user_id", flat=True))
    newest.sort(key=lambda one: (one.user_id not in asked, _is_short(one)))  # otherwise newest first
    of_each: dict[int | None, int] = {}
    for one in newest:
        of_each.setdefault(one.user_id, one.pk)
    return list(of_each.values())[:size]


def _is_short(subject: Session | MemoryStream) -> bool:
    return isinstance(subject, Session) and subject.message_count < SHORT


def _sessions() -> list[Session | MemoryStream]:
    rows = Session.objects.filter(message_count__gt=0, user__is_test=False).order_by("-last_activity_at", "-id")
    return list(rows.only("user_id", "message_count")[:SAMPLED_NEWEST])


def _streams() -> list[Session | MemoryStream]:
    rows = MemoryStream.objects.active().exclude(consolidation_prompt="").exclude(user__is_test=True)
    return list(rows.order_by("-last_updated_at", "-id").only("user_id")[:SAMPLED_NEWEST])


def trials_of(resource: PromptResource, *, actor: str) -> PromptTrialQuerySet:
    """Return the trials that an operator may see. A limited operator sees only their own."""
    found = PromptTrial.objects.for_prompt(resource)
    return found.filter(requested_by=actor) if scope_key() else found


def start_trial(version: PromptVersion, size: int, *, requested_by: str) -> PromptTrial:
    """Create a trial of a version, and of the active one if that is different."""
    trial = PromptTrial.objects.create(version=version, size=size, requested_by=requested_by)
    active = version.resource.active_version
    for one in [active, version] if active and active.pk != version.pk else [version]:
        trial.sides.create(version=one)
    return trial


def add_result(trial: PromptTrial, trial_result: Trial, outcome: Outcome, probes: Sequence[TriedProbe]) -> bool:
    """Add the result of one item of the sample. Return False if the sample was already complete."""
    if not trial.count_item(differs=outcome.differs):
        return False
    with unlimited():  # the version may be site-wide
        PromptVersion.objects.filter(pk=trial.version_id).update(is_tried=True)
    sides = {side.version_id: side for side in trial.sides.all()}
    for number, answer in enumerate(trial_result.answers):
        if side := sides.get(answer.version.pk):
            side.add(_figures(answer) | _met(probes, number))
    return True


def compared(sides: Sequence[Side]) -> Outcome:
    """Compare the two results. A single result has no differences."""
    texts = [_text(side) for side in sides]
    parts = word_diff(texts[0], texts[-1])
    words = {change: sum(part.words for part in parts if part.change == change) for change in ("added", "removed")}
    return Outcome(parts, words["added"], words["removed"])


def _text(side: Side) -> str:
    if side.result.error:
        return side.result.error
    return "\n\n".join(f"{part.heading}\n{part.text}" for part in side.parts)


def _figures(answer: TrialAnswer) -> dict[str, Any]:
    calls = answer.calls
    costs = [cost_of(call.engine, call.input_tokens, call.output_tokens) for call in calls]
    return {
        "calls": len(calls),
        "failed": int(bool(answer.error)),
        "milliseconds": sum(call.latency_ms for call in calls),
        "tokens": answer.tokens,
        "usd": sum((cost for cost in costs if cost is not None), Decimal(0)),
        "kept": sum(call.kept for call in calls),
        "dropped": sum(sum(call.dropped.values()) for call in calls),
    }


def _met(probes: Sequence[TriedProbe], number: int) -> dict[str, int]:
    measures = [probe.measures[number] for probe in probes]
    return {"probes": len(measures), "met": sum(bool(measure and measure.is_met) for measure in measures)}


# --- the session or stream that an operator chooses ---


@dataclass(frozen=True)
class Subject:
    pk: int
    name: str
    about: str


def subjects(resource: PromptResource, beginning: str) -> list[Subject]:
    """Find sessions or streams to try the prompt on, latest first, by the start of an id or name."""
    return _streams_to_offer(beginning) if is_about_streams(resource) else _sessions_to_offer(beginning)


def subject_with(resource: PromptResource, pk: int) -> Session | MemoryStream | None:
    """Return the chosen session or stream. None if it no longer exists."""
    if is_about_streams(resource):
        return MemoryStream.objects.filter(pk=pk).first()
    return Session.objects.select_related("user").filter(pk=pk).first()


def _sessions_to_offer(beginning: str) -> list[Subject]:
    found = prefix_search(Session.objects.select_related("user"), beginning, "session_id", "user__user_id")
    return [
        Subject(one.pk, one.session_id, f"{one.user}, {one.message_count} turns, {one.last_activity_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_activity_at", "-id")[:SUBJECTS]
    ]


def _streams_to_offer(beginning: str) -> list[Subject]:
    consolidating = MemoryStream.objects.active().exclude(consolidation_prompt="").select_related("user", "session")
    found = prefix_search(consolidating, beginning, "user__user_id", "name", "session__session_id")
    return [
        Subject(one.pk, one.name_on_pages, f"{one.user or 'everyone'}, {one.last_updated_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_updated_at", "-id")[:SUBJECTS]
    ]
