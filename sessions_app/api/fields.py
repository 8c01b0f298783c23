"""Serializer fields that store values unchanged, or reject them with a reason."""

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.validators import MaxLengthValidator, ProhibitNullCharactersValidator
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.validators import ProhibitSurrogateCharactersValidator

JSON_MAX_DEPTH = 32
JSON_MAX_CHARS = 200_000
SEQUENCE_MAX = 2**62
EARLIEST, END = datetime(1970, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)

# Patterns in the OpenAPI schema. They avoid syntax that only some regular expression engines support.
TEXT = r"^[^\x00]*$"
# The characters that `str.strip` removes. JavaScript's \s matches fewer.
ONLY_SPACE = r"^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$"
PUBLIC_ID_MAX = 255
PUBLIC_ID = r"^(\.{0,2}[^./\x00][^/\x00]*|\.{3}[^/\x00]*)$"
_DAY = r"(02-(0[1-9]|1[0-9]|2[0-8])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))"
_LEAP_DAY = r"(19(7[26]|8[048]|9[26])|20([02468][048]|[13579][26]))-02-29"
DATE = rf"((19[7-9][0-9]|20[0-9][0-9]|2100)-{_DAY}|{_LEAP_DAY})"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_OFFSET = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
# With an offset, times in the first and last year could fall outside the range.
_INNER_DATE = rf"((19(7[1-9]|[89][0-9])|20[0-9][0-9])-{_DAY}|{_LEAP_DAY})"
TIME = rf"^((1970|2100)-{_DAY}T{_TIME}Z|{_INNER_DATE}T{_TIME}{_OFFSET})$"

CONTRADICTORY = "contradictory"  # error code for values that are valid alone, but not together
_LAST = "T23:59:59.999999Z"  # the end of a day


class StrictSerializer(serializers.Serializer[Any]):
    """Rejects unknown fields instead of ignoring them.

    Attributes:
        rules: JSON Schema keywords for rules that concern several fields.
    """

    rules: dict[str, Any] = {}

    @classmethod
    def validated(cls, data: Any, *, is_text: bool = False) -> dict[str, Any]:
        """Return the validated data.

        Raise ValidationError if a value is not valid. The error names the item and the field.

        Args:
            data: parsed JSON, or the parameters of a query string, keyed by name.
            is_text: whether the data is from a query string, where numbers and booleans are strings.
        """
        values: dict[str, Any]
        try:
            values = dict(_validator(cls, is_text).run_validation(data))
        except (serializers.ValidationError, DjangoValidationError):  # validate again below, to report all errors
            serializer = cls(data=data, context={"is_text": is_text})
            serializer.is_valid(raise_exception=True)
            values = serializer.validated_data
        return {name: list(value) if isinstance(value, list) else value for name, value in values.items()}

    def run_validation(self, data: Any = empty) -> Any:
        if type(data) is dict and not self._has_cross_field_rules:  # skip DRF's checks across fields
            return self.to_internal_value(data)
        return super().run_validation(data)

    @cached_property
    def _has_cross_field_rules(self) -> bool:
        return bool(self.validators) or type(self).validate is not serializers.Serializer.validate

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.fields)

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(data.keys() - self._names) if isinstance(data, dict) else []
        if unknown:
            # The client chose these names, so they may be long or impossible to encode.
            names = [name[:100].encode(errors="backslashreplace").decode() for name in unknown[:10]]
            raise serializers.ValidationError(
                {name: serializers.ErrorDetail("Unknown field.", code="unknown_field") for name in names}
            )
        try:
            return self._accepted(data)
        # This is the error of a single field. DRF's method reports the errors of all fields.
        except (serializers.ValidationError, DjangoValidationError):
            return super().to_internal_value(data)

    def _accepted(self, data: Any) -> Any:
        """Return the values of all fields, or raise the error of the first invalid one.

        Faster than DRF's method, which also supports HTML forms.
        """
        if type(data) is not dict or not self._has_plain_fields:
            return super().to_internal_value(data)
        values = {}
        for name, field, check in self._checked:
            if name in data:
                value = field.run_validation(data[name])
            elif field.required:
                field.fail("required")
            elif field.default is empty:
                continue
            else:
                value = field.default() if callable(field.default) else field.default
            values[name] = check(value) if check else value
        return values

    @cached_property
    def _checked(self) -> list[tuple[str, Any, Callable[[Any], Any] | None]]:
        return [(name, field, getattr(self, f"validate_{name}", None)) for name, field in self.fields.items()]

    @cached_property
    def _has_plain_fields(self) -> bool:
        """Return whether all fields are writable and have the same name in the input and in the validated data."""
        return all(field.source == name and not field.read_only for name, field in self.fields.items())


@cache
def _validator(serializer: type[StrictSerializer], is_text: bool) -> StrictSerializer:
    """Return a serializer that is only used for validation. Cached, because building its fields is slow."""
    return serializer(context={"is_text": is_text})


class EncodableValidator(ProhibitSurrogateCharactersValidator):
    """Rejects text that can't be encoded. Encodes the text, and checks single characters only if that fails."""

    def __call__(self, value: Any) -> None:
        if not _encodable(str(value)):
            super().__call__(value)


class Patterned:
    """A field that accepts texts matching a pattern. The OpenAPI schema includes the pattern.

    Attributes:
        refused: A second pattern. The field rejects texts that match it. A single pattern for both conditions would be
            too complex for tools that generate requests from the schema.
    """

    pattern: str
    refused: str | None = None


class TextField(Patterned, serializers.CharField):
    """A string. Keeps white space, and rejects numbers."""

    pattern = TEXT

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

    def run_validators(self, value: Any) -> None:
        """Check the text directly. Run the validators, which take five times as long, only to report an error."""
        is_short = self.max_length is None or len(value) <= self.max_length
        if not (self._has_usual_validators and is_short and "\0" not in value and _encodable(value)):
            super().run_validators(value)

    @cached_property
    def _has_usual_validators(self) -> bool:
        """Return whether `run_validators` can skip all validators."""
        usual = (EncodableValidator, MaxLengthValidator, ProhibitNullCharactersValidator)
        return all(type(validator) in usual for validator in self.validators)


class WordsField(TextField):
    """A text that isn't blank."""

    refused = ONLY_SPACE
    default_error_messages = {"blank": "Enter at least one word."}

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not text.strip():
            self.fail("blank")
        return text


class PublicIdField(TextField):
    """An id that the application chooses and that is part of URLs: 1 to 255 characters without a slash.

    `.` and `..` are not valid, because clients resolve them in a URL before they send it.
    """

    pattern = PUBLIC_ID
    default_error_messages = {"slash": "An id can't contain a slash, and can't be '.' or '..'."}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": PUBLIC_ID_MAX} | kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if "/" in text or text in (".", ".."):
            self.fail("slash")
        return text


class ExternalIdField(TextField):
    """The client's own id of an item. If the client retries a request, the id identifies the item."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"required": False, "allow_null": True, "max_length": 255} | kwargs)


def is_text(field: serializers.Field[Any, Any, Any, Any]) -> bool:
    """Return whether the field's value comes from a query string."""
    return bool(field.context.get("is_text"))


class BooleanField(serializers.BooleanField):
    """A boolean. In JSON, strings and numbers are rejected."""

    def to_internal_value(self, data: Any) -> Any:
        if not (is_text(self) or isinstance(data, bool)):
            self.fail("invalid", input=data)
        return super().to_internal_value(data)


class IntegerField(serializers.IntegerField):
    """A whole number. In JSON, strings are rejected."""

    def to_internal_value(self, data: Any) -> int:
        if not is_text(self) and (isinstance(data, bool) or not isinstance(data, int | float)):
            self.fail("invalid")
        return super().to_internal_value(int(data) if isinstance(data, float) and data.is_integer() else data)


class NumberField(serializers.FloatField):
    """A number. In JSON, strings and booleans are rejected."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, str | bool):
            self.fail("invalid")
        return super().to_internal_value(data)


class UUIDField(serializers.UUIDField):
    """A UUID with dashes."""

    def to_internal_value(self, data: Any) -> Any:
        if not (isinstance(data, str) and re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", data)):
            self.fail("invalid", value=data)
        return super().to_internal_value(data)


class AwareDateTimeField(Patterned, serializers.DateTimeField):
    """A time with a UTC offset, from 1970 to the end of 2100."""

    pattern = TIME
    default_error_messages = {
        "naive": "The time needs a UTC offset, such as 2026-03-02T08:14:05Z.",
        "range": "The time must be between 1970 and the end of 2100.",
    }

    def enforce_timezone(self, value: datetime) -> datetime:
        if value.utcoffset() is None:
            self.fail("naive")
        try:
            if not EARLIEST <= value < END:
                self.fail("range")
            return value.astimezone(UTC)
        except OverflowError:
            self.fail("range")


class JsonField(serializers.JSONField):
    """Free-form JSON that PostgreSQL can store unchanged."""

    is_object = False
    default_error_messages = {
        "depth": f"The JSON is nested deeper than the limit of {JSON_MAX_DEPTH} levels.",
        "text": "Remove NUL characters and lone surrogates, which can't be stored.",
        "number": "Numbers must be finite.",
        "size": f"The strings in the JSON have more than {JSON_MAX_CHARS} characters in total.",
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
    is_object = True
    default_error_messages = {"object": "Send a JSON object."}

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            self.fail("object")
        return super().to_internal_value(data)


def _values(data: Any) -> Iterator[tuple[Any, int]]:
    """Yield all keys and values with their depth, without recursion."""
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
    if text.isascii():  # takes constant time
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class AsOfField(Patterned, serializers.CharField):
    """A time with a UTC offset, or a date, which means the end of that day in UTC."""

    pattern = rf"({TIME})|^{DATE}$"
    default_error_messages = {
        "no_time": "Enter a date, such as 2026-03-02, or a time with a UTC offset, such as 2026-03-02T08:14:05Z.",
    }

    def to_internal_value(self, data: Any) -> datetime:  # type: ignore[override]  # a text is sent and a time meant
        text = str(data)
        is_date = bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text))
        try:
            time: datetime = AwareDateTimeField().run_validation(text + _LAST if is_date else text)
        except serializers.ValidationError as error:
            if error.get_codes() == ["range"]:
                raise
            self.fail("no_time")
        return time.astimezone(UTC)


class PersonQuery(StrictSerializer):
    """Identifies the person. Optional with a user's key."""

    user_id = PublicIdField(required=False)
