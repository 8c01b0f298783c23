"""Versions of prompts: what may be the text of one, and who may put it in force."""

from django.conf import settings
from django.db import transaction

from moments_app.models import PromptResource, PromptVersion
from sessions_app.models import Event
from sessions_app.refusals import Conflict

MAX_CHARS = 100_000
NO_WORD = "content: a prompt needs at least one word."
OPERATOR = "operator:"


class NotApproved(Conflict):
    """A version can only be activated by another operator than its author."""

    code = "not_approved"


def is_second_asked() -> bool:
    """Tell whether it takes a second editor to put a version in force."""
    return bool(settings.PROMPT_APPROVAL == "second")


def with_line_breaks(content: str) -> str:
    """Return a text with line breaks as prompts have them."""
    return content.replace("\r\n", "\n")


@transaction.atomic
def put_in_force(version: PromptVersion, *, by: str) -> None:
    """Have a version count from the next job on; one that does already is left as it is.

    Args:
        version: of a prompt.
        by: operator:… or key:….

    Raises:
        NotApproved: somebody else has to do so.
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
    """Check that who puts a version in force is a person, and not its writer."""
    if not by.startswith(OPERATOR):
        raise NotApproved(f"An API key can't approve a version. Ask an operator to activate version {version.number}.")
    if version.created_by == by:
        raise NotApproved(f"You wrote version {version.number}, so another editor must activate it.")
