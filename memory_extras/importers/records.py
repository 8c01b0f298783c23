"""Converts conversations and statements of other systems to records for `import_sessions`.

Other memory systems don't export everything to one file, so users save API responses. Such a file is an array of
items, a page of items, or JSON lines, each of them an item or a page.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pydantic import ValidationError as ShapeError
from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import AwareDateTimeField, PublicIdField, StrictSerializer, WordsField
from sessions_app.api.messages import MessageInput
from sessions_app.imports.import_sessions import Record, RejectedRecord, SessionRef, Statement
from sessions_app.imports.source import CannotImport, LocatedValue, Owner, Source, public_id, reason_of
from sessions_app.text.chat_messages import Fields
from sessions_app.transcript.append import NewMessage

_message_input = MessageInput()


@dataclass(frozen=True)
class SourceConversation:
    """One conversation of a file.

    Args:
        session_id: The source's own id of the conversation.
        messages: The source's messages, oldest first.
        fields_of: Converts a source message to a list of turns, each as a dict of fields, or raises `CannotImport`.
    """

    session_id: str
    title: Any
    messages: Sequence[Any]
    fields_of: Callable[[Any], list[Fields]]


def is_empty(fields: Fields) -> bool:
    return not (fields["content"].strip() or fields.get("payload"))


def checked_message(fields: Mapping[str, Any]) -> NewMessage:
    """Return a message, or raise `CannotImport` with the API's error message."""
    try:
        return NewMessage(**_message_input.run_validation(fields))
    except ValidationError as error:
        raise CannotImport(reason_of(error)) from None


def conversation_records(
    format_name: str,
    found: Iterator[LocatedValue | RejectedRecord],
    owner: Owner,
    parse: Callable[[Any], SourceConversation],
) -> Iterator[Record | RejectedRecord]:
    """Yield the messages of all conversations. Raise `CannotImport` if the owner is missing.

    Args:
        format_name: The prefix of session and message ids, which keeps ids of different formats unique.
        found: The values of the file, one conversation each.
        parse: Converts one of these values to a conversation, or raises `CannotImport` with the reason.
    """
    if not owner.user_id:
        raise CannotImport(f"A file of the format {format_name} doesn't name the person. Name them with --user.")
    return _all_records(format_name, found, owner, parse)


def _all_records(
    format_name: str,
    found: Iterator[LocatedValue | RejectedRecord],
    owner: Owner,
    parse: Callable[[Any], SourceConversation],
) -> Iterator[Record | RejectedRecord]:
    for item in found:
        if isinstance(item, RejectedRecord):
            yield item
            continue
        try:
            conversation = parse(item.value)
            session_id = public_id(f"{format_name}:{conversation.session_id}")
        except (CannotImport, ShapeError, RecursionError) as error:
            yield RejectedRecord(item.where, reason_of(error))
            continue
        place = SessionRef(
            user_id=owner.user_id,
            session_id=session_id,
            agent_id=owner.agent_id,
            source=f"import:{format_name}",
            title=_title(conversation.title),
        )
        for number, message in enumerate(conversation.messages, 1):
            yield from _records(f"{item.where}, message {number}", format_name, place, conversation, message)


def _records(
    where: str, format_name: str, place: SessionRef, conversation: SourceConversation, message: Any
) -> Iterator[Record | RejectedRecord]:
    """Yield the non-empty messages that a source message was converted to, or the reason why it can't be imported."""
    try:
        new = [
            checked_message(fields | {"external_id": f"{format_name}:{fields['external_id']}"})
            for fields in conversation.fields_of(message)
            if not is_empty(fields)
        ]
    except (CannotImport, ShapeError, RecursionError) as error:
        yield RejectedRecord(where, reason_of(error))
    else:
        yield from (Record(where, place, one) for one in new)


def _title(title: Any) -> str:
    """Return a title that fits the column: without characters that PostgreSQL rejects, cut to 255 characters."""
    text = title if isinstance(title, str) else ""
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()[:255]


def point_in_time(seconds: float | None) -> datetime | None:
    """Convert seconds since 1970 to a time, or raise `CannotImport` if it is out of range."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise CannotImport("Its time must be between 1970 and the end of 2100.") from None


# --- items: messages, or statements about a person ---


TEXT_MAX_CHARS = 4_000
NO_PERSON = "It doesn't name the person. Name them with --user."
ENDS_BEFORE_START = "Its end is before its start."


class StatementInput(StrictSerializer):
    user_id = PublicIdField(error_messages={"blank": NO_PERSON})
    agent_id = PublicIdField(allow_blank=True)
    text = WordsField(max_length=TEXT_MAX_CHARS, error_messages={"blank": "It has no text."})
    said_at = AwareDateTimeField(allow_null=True)
    valid_from = AwareDateTimeField(allow_null=True)
    valid_until = AwareDateTimeField(allow_null=True)
    ended_at = AwareDateTimeField(allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        begins, ends = attrs["valid_from"], attrs["valid_until"]
        if begins and ends and ends < begins:
            raise ValidationError(ENDS_BEFORE_START)
        return attrs


_statement_input = StatementInput()


def items(source: Source, pages: str) -> Iterator[LocatedValue | RejectedRecord]:
    """Yield the items of a file: an array, pages with the items in the field `pages`, or one item per line."""
    for found in source.values():
        page = found.value.get(pages) if isinstance(found, LocatedValue) and isinstance(found.value, dict) else None
        if isinstance(page, list):
            yield from (LocatedValue(f"{found.where}, item {number}", item) for number, item in enumerate(page, 1))
        else:
            yield found


def has_item_with(source: Source, pages: str, *names: frozenset[str]) -> bool:
    for found in islice(items(source, pages), 1):
        fields = found.value.keys() if isinstance(found, LocatedValue) and isinstance(found.value, dict) else ()
        return any(group <= set(fields) for group in names)
    return False


def statement(where: str, format_name: str, owner: Owner, **fields: Any) -> Statement | RejectedRecord:
    """Return a statement, or the reason why it can't be imported. An item without a person belongs to the owner."""
    given = dict.fromkeys(("said_at", "valid_from", "valid_until", "ended_at")) | fields
    given["user_id"], given["agent_id"] = given.get("user_id") or owner.user_id, owner.agent_id
    try:
        values = _statement_input.run_validation(given)
    except ValidationError as error:
        return RejectedRecord(where, reason_of(error))
    return Statement(where=where, source=f"import:{format_name}", **values)
