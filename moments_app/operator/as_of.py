"""The date for which pages about a person show memory. It is in the URL, and links between these pages keep it."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Self

from django import forms
from django.http import HttpRequest


class AsOfForm(forms.Form):
    """The day whose end is the requested time."""

    as_of = forms.DateField(required=False)


@dataclass(frozen=True)
class AsOf:
    """The requested time: the end of a day.

    Args:
        form: the submitted form.
    """

    form: AsOfForm

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        """Read it from a request's URL."""
        return cls(AsOfForm(request.GET))

    @property
    def day(self) -> date | None:
        """The day; None: now."""
        return self.form.cleaned_data.get("as_of") if self.form.is_valid() else None

    @property
    def time(self) -> datetime | None:
        """The end of the day; None: now."""
        return datetime.combine(self.day, time.max, tzinfo=UTC) if self.day else None

    @property
    def query(self) -> str:
        """The query string that keeps the day; blank: now."""
        return f"?as_of={self.day}" if self.day else ""

    @property
    def more(self) -> str:
        """The part to append to an existing query string."""
        return self.query.replace("?", "&")
