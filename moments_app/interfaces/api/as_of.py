"""`as_of`: the time whose memory is asked for."""

import re
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from sessions_app.api.fields import DATE, TIME, AwareDateTimeField, Patterned

_LAST = "T23:59:59.999999Z"  # of a day


class AsOfField(Patterned, serializers.CharField):
    """A time with its offset, or a date, which stands for its end in UTC."""

    pattern = rf"({TIME})|^{DATE}$"

    def to_internal_value(self, data: Any) -> datetime:  # type: ignore[override]  # a text is sent and a time meant
        """Return the time."""
        text = str(data)
        is_date = bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text))
        time: datetime = AwareDateTimeField().run_validation(text + _LAST if is_date else text)
        return time.astimezone(UTC)
