"""Additional permissions for pages that show much of a person's data at once."""

from django.http import HttpRequest

READ_PERSON = "sessions_app.read_userprofile"
EXPORT_PERSON = "sessions_app.export_userprofile"
PREVIEW_CONTEXT = "sessions_app.preview_context"
# Permissions to see everything that memory stores about a person, and the sources.
SEE_MEMORY = (
    "sessions_app.view_session",
    "sessions_app.view_userprofile",
    "moments_app.view_moment",
    "moments_app.view_summary",
    "moments_app.view_memorystream",
    "moments_app.view_memoryatom",
    "moments_app.view_entity",
)
RETRACT_DIRECTLY = ("moments_app.add_retraction", *SEE_MEMORY)


def may_retract_directly(request: HttpRequest) -> bool:
    return request.user.has_perms(RETRACT_DIRECTLY)
