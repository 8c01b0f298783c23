"""Versions of prompts: normalize their texts, and check who may activate them."""

from django.conf import settings
from django.db import transaction

from moments_app.models import PromptResource, PromptVersion
from sessions_app.models import Event
from sessions_app.refusals import Conflict

MAX_CHARS = 100_000
NO_WORD = "content: a prompt needs at least one word."
OPERATOR = "operator:"


class NotApproved(Conflict):
    """The version can only be activated by an operator other than its author."""

    code = "not_approved"


def is_second_asked() -> bool:
    """Return whether another editor must activate a version."""
    return bool(settings.PROMPT_APPROVAL == "second")


def with_line_breaks(content: str) -> str:
    """Return a text with normalized line breaks."""
    return content.replace("\r\n", "\n")


@transaction.atomic
def put_in_force(version: PromptVersion, *, by: str) -> None:
    """Activate a version from the next job on. An active version stays unchanged.

    Args:
        by: `operator:…` or `key:…`.

    Raises:
        NotApproved: another operator must do this.
    """
    resource = PromptResource.objects.select_for_update().get(pk=version.resource_id)
    if resource.active_version_id == version.pk:
        return
    if is_second_asked() and version.pk != resource.previous_version_id:
        _check_approval(version, by)
    resource.activate(version)
    payload = {"uri": resource.uri, "version": version.number}
    Event.objects.create(type="prompt_activated", actor=by, application_id=resource.application_id, payload=payload)


def _check_approval(version: PromptVersion, by: str) -> None:
    """Check that a version is activated by a person other than its author."""
    if not by.startswith(OPERATOR):
        raise NotApproved(f"An API key can't approve a version. Ask an operator to activate version {version.number}.")
    if version.created_by == by:
        raise NotApproved(f"You wrote version {version.number}, so another editor must activate it.")
