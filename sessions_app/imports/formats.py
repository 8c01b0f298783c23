"""Importing conversations: the registry of file formats.

The reader of a format yields the messages in a file with their sessions (`Record`), facts without a message
(`Statement`), and records that it can't import (`Rejected`). It writes nothing. To add a format, write a module with
`DESCRIPTION`, `recognizes` and `read`, and register it in the `ready` method of an app.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.messages import MessageInput
from sessions_app.imports.import_sessions import Record, Rejected, SessionRef, Statement
from sessions_app.imports.source import CannotImport, Owner, Source, Unreadable, reason_of
from sessions_app.transcript.append import NewMessage


class Format(Protocol):
    """A module or object that reads a format. `DESCRIPTION` describes how it recognizes the format."""

    @property
    def DESCRIPTION(self) -> str: ...  # noqa: N802 (a module's constant)
    def recognizes(self, source: Source) -> bool: ...
    def read(self, source: Source, owner: Owner) -> Iterator[Record | Statement | Rejected]: ...


class ImportRecord(MessageInput):
    """A line of the file: a message and the session that it belongs to."""

    user_id = PublicIdField()
    session_id = PublicIdField()
    agent_id = PublicIdField(default="")
    source = TextField(max_length=64, default="import")  # type: ignore[assignment]  # not the attribute of a field


class JsonLines:
    """Our own format. Each line has the API's fields of a message, its user and its session."""

    DESCRIPTION = "JSON lines with user_id, session_id and role (jsonl)"

    def recognizes(self, source: Source) -> bool:
        return source.first_names >= {"user_id", "session_id", "role"}

    def read(self, source: Source, owner: Owner) -> Iterator[Record | Rejected]:
        """Yield the messages. A message without an `external_id` gets one from its position in its session."""
        if owner != Owner():
            raise CannotImport("Each line of this format names its user and agent: leave out --user and --agent.")
        return self._records(source)

    def _records(self, source: Source) -> Iterator[Record | Rejected]:
        record = ImportRecord()
        positions: Counter[tuple[str, str]] = Counter()
        for found in source.lines():
            if isinstance(found, Rejected):
                yield found
                continue
            try:
                fields: dict[str, Any] = record.run_validation(found.value)
            except ValidationError as error:
                yield Rejected(found.where, reason_of(error))
                continue
            ref = SessionRef(**{name: fields.pop(name) for name in ("user_id", "session_id", "agent_id", "source")})
            session = ref.user_id, ref.session_id
            positions[session] += 1
            fields["external_id"] = fields["external_id"] or f"import:{positions[session]}"
            yield Record(found.where, ref, NewMessage(**fields))


FORMATS: dict[str, Format] = {"jsonl": JsonLines()}  # in the order in which they are tried


def register_format(name: str, reader: Format) -> None:
    FORMATS[name] = reader


def recognize(source: Source) -> Format:
    """Return the format that recognizes the start of a file. Raise Unreadable if none does."""
    for known in FORMATS.values():
        if known.recognizes(source):
            return known
    looked_for = "; ".join(known.DESCRIPTION for known in FORMATS.values())
    raise Unreadable(f"{source.path} has no known format. Known formats: {looked_for}.")
