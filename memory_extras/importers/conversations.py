"""Converts another system's conversations to records for `import_sessions`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError as ShapeError
from rest_framework.exceptions import ValidationError

from sessions_app.api.messages import MessageInput
from sessions_app.imports.import_sessions import Record, Rejected, SessionRef
from sessions_app.imports.source import CannotImport, LocatedValue, Owner, public_id, reason_of
from sessions_app.text.chat_messages import Fields
from sessions_app.transcript.append import NewMessage

_message_input = MessageInput()


@dataclass(frozen=True)
class SourceConversation:
    """One conversation of a file.

    Args:
        session_id: The source's own id of the conversation.
        messages: The source's messages, oldest first.
        fields_of: Converts a message to the fields of any number of messages, or raises CannotImport with the reason.
    """

    session_id: str
    title: Any
    messages: Sequence[Any]
    fields_of: Callable[[Any], list[Fields]]


def checked_message(fields: Mapping[str, Any]) -> NewMessage:
    """Return a message with these fields.

    Raises:
        CannotImport: The API would reject them. The text is the API's error message.
    """
    try:
        return NewMessage(**_message_input.run_validation(fields))
    except ValidationError as error:
        raise CannotImport(reason_of(error)) from None


def conversation_records(
    format_name: str, found: Iterator[LocatedValue | Rejected], owner: Owner, parse: Callable[[Any], SourceConversation]
) -> Iterator[Record | Rejected]:
    """Yield the messages of all conversations.

    Args:
        format_name: The prefix of session and message ids, which keeps ids of different formats unique.
        found: The values of the file, one conversation each.
        owner: The person and agent of the conversations.
        parse: Converts such a value to a conversation, or raises CannotImport with the reason.

    Raises:
        CannotImport: The owner is missing.
    """
    if not owner.user_id:
        raise CannotImport(f"A file of the format {format_name} doesn't name the person. Name them with --user.")
    return _all_records(format_name, found, owner, parse)


def _all_records(
    format_name: str, found: Iterator[LocatedValue | Rejected], owner: Owner, parse: Callable[[Any], SourceConversation]
) -> Iterator[Record | Rejected]:
    for item in found:
        if isinstance(item, Rejected):
            yield item
            continue
        try:
            conversation = parse(item.value)
            session_id = public_id(f"{format_name}:{conversation.session_id}")
        except (CannotImport, ShapeError, RecursionError) as error:
            yield Rejected(item.where, reason_of(error))
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
) -> Iterator[Record | Rejected]:
    """Yield the messages that a message of the source converts to, or the reason why it can't be imported."""
    try:
        new = [
            checked_message(fields | {"external_id": f"{format_name}:{fields['external_id']}"})
            for fields in conversation.fields_of(message)
        ]
    except (CannotImport, ShapeError, RecursionError) as error:
        yield Rejected(where, reason_of(error))
    else:
        yield from (Record(where, place, one) for one in new)


def _title(title: Any) -> str:
    """Return the part of a title that can be stored: 255 characters, without those that PostgreSQL rejects."""
    text = title if isinstance(title, str) else ""
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()[:255]


def point_in_time(seconds: float | None) -> datetime | None:
    """Convert seconds since 1970 to a time.

    Raises:
        CannotImport: The time is out of range.
    """
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise CannotImport("Its time must be between 1970 and the end of 2100.") from None
