"""Install the shipped prompts in the database.

Each text is a file next to this module. `migrate` writes each text once as a version of its resource, so a new release
adds a version. The version is activated only if the active one is a shipped one, so it never replaces an operator's
version.
"""

from pathlib import Path
from typing import Any

from django.db import transaction

SHIPPED_BY = "shipped"
ADDRESS = "rem://prompts/"
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


@transaction.atomic
def install_shipped_prompts(**_: Any) -> None:
    """Add new shipped prompts and activate them, in one transaction."""
    from moments_app.models import PromptResource

    for uri, (name, purpose) in _SHIPPED.items():
        given = {"name": name, "purpose": purpose}
        resource, _created = PromptResource.objects.update_or_create(uri=uri, application=None, defaults=given)
        content = (Path(__file__).parent / f"{purpose}.md").read_text(encoding="utf-8")
        if resource.versions.filter(created_by=SHIPPED_BY, content=content).exists():
            continue
        version = resource.add_version(content, created_by=SHIPPED_BY, note="Shipped with the product")
        if resource.active_version is None or resource.active_version.created_by == SHIPPED_BY:
            resource.activate(version)
