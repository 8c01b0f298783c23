"""`import_sessions`: conversations from a file, a message a line, as if they had been posted."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from sessions_app.api.fields import PublicIdField, TextField
from sessions_app.api.serializers import BATCH_MAX, MessageInput
from sessions_app.models import UserProfile
from sessions_app.processes.append import NewMessage, append


class ImportRecord(MessageInput):
    """A line of the file: a message, and where it belongs."""

    user_id = PublicIdField()
    session_id = PublicIdField()
    agent_id = PublicIdField(default="")
    source = TextField(max_length=64, default="import")  # type: ignore[assignment]  # not the attribute of a field


@dataclass(frozen=True)
class Place:
    """Where a message belongs."""

    user_id: str
    session_id: str
    agent_id: str
    source: str


class Command(BaseCommand):
    help = (
        "Imports messages from JSONL, one a line: {user_id, session_id, role, content, …}, with the fields of the API "
        "and agent_id and source. It can be repeated: a message without an external_id is known by its position in "
        "its session. Bad lines are reported and left out."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> str:
        self.rejected = 0
        added = known = 0
        for place, batch in _batches(self._records(options["file"])):
            user = UserProfile.objects.ensure(place.user_id)
            appended = append(user, place.session_id, batch, agent_id=place.agent_id, source=place.source)
            new = sum(created for _, created in appended.messages)
            added, known = added + new, known + len(batch) - new
        summary = f"{added} messages added, {known} were there already, {self.rejected} lines rejected"
        if self.rejected:
            raise CommandError(summary)
        return summary

    def _records(self, path: Path) -> Iterator[tuple[Place, NewMessage]]:
        """The valid lines, in order; the others are reported."""
        positions: Counter[tuple[str, str]] = Counter()
        try:
            lines = path.open("rb")
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from error
        with lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    fields = _parsed(line)
                except ValueError as error:
                    self.rejected += 1
                    self.stderr.write(f"line {number}: {error}")
                    continue
                place = Place(**{name: fields.pop(name) for name in ("user_id", "session_id", "agent_id", "source")})
                session = place.user_id, place.session_id
                positions[session] += 1
                fields["external_id"] = fields["external_id"] or f"import:{positions[session]}"
                yield place, NewMessage(**fields)


def _parsed(line: bytes) -> dict[str, Any]:
    """The fields of a line.

    Raises:
        ValueError: with the reason.
    """
    try:
        record = ImportRecord(data=json.loads(line))
    except (ValueError, RecursionError):
        raise ValueError("not valid JSON in UTF-8") from None
    if not record.is_valid():
        raise ValueError(json.dumps(record.errors, ensure_ascii=False))
    return dict(record.validated_data)


def _batches(records: Iterator[tuple[Place, NewMessage]]) -> Iterator[tuple[Place, list[NewMessage]]]:
    """Runs of messages of one session, each at most as long as the API takes."""
    place: Place | None = None
    batch: list[NewMessage] = []
    for next_place, message in records:
        if place is not None and (next_place != place or len(batch) == BATCH_MAX):
            yield place, batch
            batch = []
        place = next_place
        batch.append(message)
    if place is not None:
        yield place, batch
