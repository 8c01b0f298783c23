"""`as_of`: the time for which memory is requested."""

import re
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from sessions_app.api.fields import DATE, TIME, AwareDateTimeField, Patterned

_LAST = "T23:59:59.999999Z"  # the end of a day


class AsOfField(Patterned, serializers.CharField):
    """A time with its offset, or a date, which stands for its end in UTC."""

    pattern = rf"({TIME})|^{DATE}$"
    default_error_messages = {
        "no_time": "Enter a date, such as 2026-03-02, or a time with a UTC offset, such as 2026-03-02T08:14:05Z.",
    }

    def to_internal_value(self, data: Any) -> datetime:  # type: ignore[override]  # a text is sent and a time meant
        """Return the time.

        Raises:
            ValidationError: the text is not a time, or the time is not from 1970 to the end of 2100.
        """
        text = str(data)
        is_date = bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text))
        try:
            time: datetime = AwareDateTimeField().run_validation(text + _LAST if is_date else text)
        except serializers.ValidationError as error:
            if error.get_codes() == ["range"]:
                raise
            self.fail("no_time")
        return time.astimezone(UTC)
