"""The sessions and streams for prompt trials, and the results as the page shows them."""

from dataclasses import dataclass

from memory_extras.lab.trials.parts import AnswerPart, is_about_streams, parts
from memory_extras.lab.trials.try_prompt import Trial, TrialAnswer
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from sessions_app.admin.base import prefix_search
from sessions_app.models import Session

SUBJECTS = 8  # to offer at once; operators find others by typing


@dataclass(frozen=True)
class Subject:
    """A session or stream that a prompt can be tried on."""

    pk: int
    name: str
    about: str


@dataclass(frozen=True)
class Side:
    """The result of one text in a trial."""

    made: TrialAnswer
    is_active: bool
    parts: list[AnswerPart]


def subjects(resource: PromptResource, beginning: str) -> list[Subject]:
    """Find sessions or streams to try the prompt on, latest first.

    Args:
        resource: The prompt.
        beginning: The start of an id or name, typed by the operator. Blank finds all.
    """
    return _streams(beginning) if is_about_streams(resource) else _sessions(beginning)


def subject_with(resource: PromptResource, pk: int) -> Session | MemoryStream | None:
    """Return the chosen session or stream. None if it no longer exists."""
    if is_about_streams(resource):
        return MemoryStream.objects.filter(pk=pk).first()
    return Session.objects.select_related("user").filter(pk=pk).first()


def _sessions(beginning: str) -> list[Subject]:
    found = prefix_search(Session.objects.select_related("user"), beginning, "session_id", "user__user_id")
    return [
        Subject(one.pk, one.session_id, f"{one.user}, {one.message_count} turns, {one.last_activity_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_activity_at", "-id")[:SUBJECTS]
    ]


def _streams(beginning: str) -> list[Subject]:
    consolidating = MemoryStream.objects.active().exclude(consolidation_prompt="").select_related("user", "session")
    found = prefix_search(consolidating, beginning, "user__user_id", "name", "session__session_id")
    return [
        Subject(one.pk, one.name_on_pages, f"{one.user or 'everyone'}, {one.last_updated_at:%Y-%m-%d %H:%M}")
        for one in found.order_by("-last_updated_at", "-id")[:SUBJECTS]
    ]


def sides(trial: Trial, active: PromptVersion | None) -> list[Side]:
    """Return both sides of a trial."""
    return [
        Side(made, bool(active and made.version.pk == active.pk), parts(made.answer) if made.answer else [])
        for made in trial.answers
    ]
