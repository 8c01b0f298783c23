"""Reader of our own format, JSON Lines. Each line has the API's fields of a message, its user and its session."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.messages import MessageInput
from sessions_app.imports.import_sessions import Place, Record, Rejected
from sessions_app.imports.source import CannotImport, Owner, Source, reason_of
from sessions_app.transcript.append import NewMessage

LOOKED_FOR = "JSON lines with user_id, session_id and role (jsonl)"


class ImportRecord(MessageInput):
    """A line of the file: a message and the session that it belongs to."""

    user_id = PublicIdField()
    session_id = PublicIdField()
    agent_id = PublicIdField(default="")
    source = TextField(max_length=64, default="import")  # type: ignore[assignment]  # not the attribute of a field


def recognizes(source: Source) -> bool:
    return source.first_names >= {"user_id", "session_id", "role"}


def read(source: Source, owner: Owner) -> Iterator[Record | Rejected]:
    """Yield the messages. A message without an `external_id` gets one from its position in its session.

    Raises:
        CannotImport: An owner was given, but each line of this format contains its own.
    """
    if owner != Owner():
        raise CannotImport("Each line of this format names its user and agent: leave out --user and --agent.")
    return _records(source)


def _records(source: Source) -> Iterator[Record | Rejected]:
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
        place = Place(**{name: fields.pop(name) for name in ("user_id", "session_id", "agent_id", "source")})
        session = place.user_id, place.session_id
        positions[session] += 1
        fields["external_id"] = fields["external_id"] or f"import:{positions[session]}"
        yield Record(found.where, place, NewMessage(**fields))
