"""The day of which pages about a person tell: a date in the address, which the links between these pages carry on."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Self

from django import forms
from django.http import HttpRequest


class AsOfForm(forms.Form):
    """The day whose end is asked for."""

    as_of = forms.DateField(required=False)


@dataclass(frozen=True)
class AsOf:
    """The day whose end is asked for.

    Args:
        form: as it was sent.
    """

    form: AsOfForm

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        """Read it from an address."""
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
        """The end of an address that carries it; blank: now."""
        return f"?as_of={self.day}" if self.day else ""

    @property
    def more(self) -> str:
        """The end of an address that has a query already."""
        return self.query.replace("?", "&")
