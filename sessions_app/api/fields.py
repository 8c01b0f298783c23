"""Serializer fields that store what was sent exactly, or refuse it with a reason."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.validators import ProhibitSurrogateCharactersValidator

JSON_MAX_DEPTH = 32
JSON_MAX_CHARS = 200_000
SEQUENCE_MAX = 2**62
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields in place of ignoring them."""

    @classmethod
    def validated(cls, data: Any) -> dict[str, Any]:
        """Return what was sent, as these fields have it.

        Raises:
            ValidationError: naming item and field.
        """
        serializer = cls(data=data)
        serializer.is_valid(raise_exception=True)
        values: dict[str, Any] = serializer.validated_data
        return values

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            # Named, but not quoted at length: it is the client's text.
            raise serializers.ValidationError(
                {_told(name): serializers.ErrorDetail("Unknown field.", code="unknown_field") for name in unknown[:10]}
            )
        return super().to_internal_value(data)


def _told(name: str) -> str:
    """Return the beginning of a field's name as an answer can have it: lone surrogates have no place in UTF-8."""
    return name[:100].encode("utf-8", "backslashreplace").decode()


class EncodableValidator(ProhibitSurrogateCharactersValidator):
    """Says the same, but looks at each character by itself only when there is something to say."""

    def __call__(self, value: Any) -> None:
        if not _encodable(str(value)):
            super().__call__(value)


class TextField(serializers.CharField):
    """A string, kept with its white space; numbers are not turned into strings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)
        self.validators = [
            EncodableValidator() if isinstance(known, ProhibitSurrogateCharactersValidator) else known
            for known in self.validators
        ]

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class PublicIdField(TextField):
    """An id that the application chooses and that stands in addresses: 1 to 255 characters without a slash."""

    default_error_messages = {"slash": "An id has no slash and is not '.' or '..'."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=255, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if "/" in text or text in (".", ".."):
            self.fail("slash")
        return text


class AwareDateTimeField(serializers.DateTimeField):
    """A time with its offset, between 1970 and 2100."""

    default_error_messages = {
        "naive": "A time needs its offset from UTC, e.g. 2026-03-02T08:14:05Z.",
        "range": "A time must lie between 1970 and 2100.",
    }

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.utcoffset() is None:
            self.fail("naive")
        try:
            if not EARLIEST <= value < LATEST:
                self.fail("range")
            return value.astimezone(UTC)
        except OverflowError:
            self.fail("range")


class JsonField(serializers.JSONField):
    """Free-form JSON that PostgreSQL keeps as it was sent."""

    default_error_messages = {
        "depth": f"Nested deeper than {JSON_MAX_DEPTH} levels.",
        "text": "NUL characters and lone surrogates can't be stored.",
        "number": "A number is not finite.",
        "size": f"The strings in it have more than {JSON_MAX_CHARS} characters together.",
    }

    def to_internal_value(self, data: Any) -> Any:
        size = 0
        for value, depth in _values(data):
            if depth > JSON_MAX_DEPTH:
                self.fail("depth")
            if isinstance(value, str):
                size += len(value)
                if "\0" in value or not _encodable(value):
                    self.fail("text")
            elif isinstance(value, float) and not math.isfinite(value):
                self.fail("number")
            size += 1
            if size > JSON_MAX_CHARS:
                self.fail("size")
        return data


class JsonObjectField(JsonField):
    """Free-form JSON that is an object."""

    default_error_messages = {"object": "Expected an object."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            self.fail("object")
        return super().to_internal_value(data)


def _values(data: Any) -> Iterator[tuple[Any, int]]:
    """Yield every key and value with its depth, without recursion."""
    waiting = [(data, 1)]
    while waiting:
        value, depth = waiting.pop()
        yield value, depth
        if depth > JSON_MAX_DEPTH:
            return
        if isinstance(value, dict):
            waiting += [(part, depth + 1) for item in value.items() for part in item]
        elif isinstance(value, list):
            waiting += [(part, depth + 1) for part in value]


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
