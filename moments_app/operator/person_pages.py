"""Code that pages about a person share: the date for which they show memory, and additional permissions.

Pages that show a large part of a person's data at once require these permissions."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Self

from django import forms
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


# --- the date: it is in the URL, and links between these pages keep it ---


class AsOfForm(forms.Form):
    as_of = forms.DateField(required=False)


@dataclass(frozen=True)
class AsOf:
    """The point in time for which a page shows memory: the end of a chosen day, or now."""

    form: AsOfForm

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        """Read the day from the request's query string."""
        return cls(AsOfForm(request.GET))

    @property
    def day(self) -> date | None:
        """The chosen day, or None for now."""
        return self.form.cleaned_data.get("as_of") if self.form.is_valid() else None

    @property
    def time(self) -> datetime | None:
        """The end of the chosen day, or None for now."""
        return datetime.combine(self.day, time.max, tzinfo=UTC) if self.day else None

    @property
    def query(self) -> str:
        """The query string for links that keep the day. Blank for now."""
        return f"?as_of={self.day}" if self.day else ""

    @property
    def query_suffix(self) -> str:
        """The same parameter as in `query`, to append to an existing query string."""
        return self.query.replace("?", "&")
