"""Install the shipped prompts, whose texts are next to this module, and activate versions of prompts."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from moments_app.models import PromptResource, PromptVersion
from sessions_app.models import Event
from sessions_app.refusals import Conflict

SHIPPED_BY = "shipped"
URI_PREFIX = "rem://prompts/"
MOMENT_BUILDER_URI = "rem://prompts/moment-builder"
ROLLING_SUMMARY_URI = "rem://prompts/rolling-summary"
MEMORY_EXTRACTION_URI = "rem://prompts/memory-extraction"
STREAM_CONSOLIDATION_URI = "rem://prompts/stream-consolidation"
SESSION_DIGEST_URI = "rem://prompts/session-digest"
RECALL_QUERY_URI = "rem://prompts/recall-query"

_SHIPPED = {
    MOMENT_BUILDER_URI: ("Moment builder", "moment-builder"),
    ROLLING_SUMMARY_URI: ("Rolling summary", "rolling-summary"),
    MEMORY_EXTRACTION_URI: ("Memory extraction", "memory-extraction"),
    STREAM_CONSOLIDATION_URI: ("Merging observations", "stream-consolidation"),
    SESSION_DIGEST_URI: ("Compacting a session", "session-digest"),
    RECALL_QUERY_URI: ("Search query", "recall-query"),
}
MAX_CHARS = 100_000
BLANK_PROMPT = "content: a prompt needs at least one word."
OPERATOR = "operator:"


@transaction.atomic
def install_shipped_prompts(**_: Any) -> None:
    """Add new shipped prompts. Activate each of them, unless an operator's version is active."""
    for uri, (name, purpose) in _SHIPPED.items():
        given = {"name": name, "purpose": purpose}
        resource, _created = PromptResource.objects.update_or_create(uri=uri, application=None, defaults=given)
        content = (Path(__file__).parent / f"{purpose}.md").read_text(encoding="utf-8")
        if resource.versions.filter(created_by=SHIPPED_BY, content=content).exists():
            continue
        version = resource.add_version(content, created_by=SHIPPED_BY, note="Shipped with the product")
        if resource.active_version is None or resource.active_version.created_by == SHIPPED_BY:
            resource.activate(version)


class NotApproved(Conflict):
    """The version can only be activated by an operator other than its author."""

    code = "not_approved"


def needs_second_editor() -> bool:
    return bool(settings.PROMPT_APPROVAL == "second")


def normalize_newlines(content: str) -> str:
    return content.replace("\r\n", "\n")


@transaction.atomic
def activate_version(version: PromptVersion, *, by: str) -> bool:
    """Activate a version of a prompt. Jobs that start from now on use it. Return False if it was already active.

    Args:
        by: `operator:…` or `key:…`.

    Raises:
        NotApproved: another operator must do this.
    """
    resource = PromptResource.objects.select_for_update().get(pk=version.resource_id)
    if resource.active_version_id == version.pk:
        return False
    if needs_second_editor() and version.pk != resource.previous_version_id:
        _check_approval(version, by)
    resource.activate(version)
    payload = {"uri": resource.uri, "version": version.number}
    Event.objects.create(type="prompt_activated", actor=by, application_id=resource.application_id, payload=payload)
    return True


def _check_approval(version: PromptVersion, by: str) -> None:
    if not by.startswith(OPERATOR):
        raise NotApproved(f"An API key can't approve a version. Ask an operator to activate version {version.number}.")
    if version.created_by == by:
        raise NotApproved(f"You wrote version {version.number}, so another editor must activate it.")
