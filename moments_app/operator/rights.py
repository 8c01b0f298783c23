"""Rights that pages take beside those of their lists, because they show much of a person at once."""

from django.http import HttpRequest

READ_PERSON = "sessions_app.read_userprofile"
EXPORT_PERSON = "sessions_app.export_userprofile"
PREVIEW_CONTEXT = "sessions_app.preview_context"
# To see all that memory keeps of a person, and what it was made of.
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
    """Tell whether the operator may retract what somebody wrote directly."""
    return request.user.has_perms(RETRACT_DIRECTLY)
