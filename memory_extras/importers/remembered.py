"""Exports of other memory systems: pages of items. Items are messages, or statements about a person.

None of these systems exports everything to one file, so users save its API responses. A file may be an array of items,
a page with items, or JSON lines with an item or a page each.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import AwareDateTimeField, PublicIdField, StrictSerializer, WordsField
from sessions_app.imports.import_sessions import Rejected, Statement
from sessions_app.imports.source import LocatedValue, Owner, Source, reason_of

TEXT_MAX_CHARS = 4_000
NOBODY = "It doesn't name the person. Name them with --user."
BACKWARDS = "Its end is before its start."


class StatementInput(StrictSerializer):
    """A statement about a person, and its times."""

    user_id = PublicIdField(error_messages={"blank": NOBODY})
    agent_id = PublicIdField(allow_blank=True)
    text = WordsField(max_length=TEXT_MAX_CHARS, error_messages={"blank": "It has no text."})
    said_at = AwareDateTimeField(allow_null=True)
    valid_from = AwareDateTimeField(allow_null=True)
    valid_until = AwareDateTimeField(allow_null=True)
    ended_at = AwareDateTimeField(allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that no time range ends before it starts."""
        begins, ends = attrs["valid_from"], attrs["valid_until"]
        if begins and ends and ends < begins:
            raise ValidationError(BACKWARDS)
        return attrs


_statement_input = StatementInput()


def items(source: Source, pages: str) -> Iterator[LocatedValue | Rejected]:
    """Yield the items of a file: an array, pages, or one item per line.

    Args:
        pages: The field of a page that contains its items.
    """
    for found in source.values():
        page = found.value.get(pages) if isinstance(found, LocatedValue) and isinstance(found.value, dict) else None
        if isinstance(page, list):
            yield from (LocatedValue(f"{found.where}, item {number}", item) for number, item in enumerate(page, 1))
        else:
            yield found


def has_item_with(source: Source, pages: str, *names: frozenset[str]) -> bool:
    """Return whether the first item has all fields of one of these groups."""
    for found in islice(items(source, pages), 1):
        fields = found.value.keys() if isinstance(found, LocatedValue) and isinstance(found.value, dict) else ()
        return any(group <= set(fields) for group in names)
    return False


def statement(where: str, format_name: str, owner: Owner, **fields: Any) -> Statement | Rejected:
    """Return a statement with these fields, or the reason why it can't be imported.

    Args:
        where: Its position in the file.
        format_name: The format of the file.
        owner: The person, if the item names none.
        fields: Fields of `StatementInput`. Missing ones are unknown.
    """
    given = dict.fromkeys(("said_at", "valid_from", "valid_until", "ended_at")) | fields
    given["user_id"], given["agent_id"] = given.get("user_id") or owner.user_id, owner.agent_id
    try:
        values = _statement_input.run_validation(given)
    except ValidationError as error:
        return Rejected(where, reason_of(error))
    return Statement(where=where, source=f"import:{format_name}", **values)
