"""`import_sessions`: add the conversations of a file as if they had been posted."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from sessions_app.imports.import_sessions import ImportCounts, RejectedRecord, import_sessions
from sessions_app.imports.source import Owner, Source, formats, recognize
from sessions_app.management.base import RefusingCommand, add_application, application_of, public_id

SECONDS_BETWEEN = {True: 0.2, False: 5.0}  # minimum time between progress reports, on a terminal and elsewhere
OBJECTS_BETWEEN = 50_000  # number of new objects after which the garbage collector runs
MIB = 2**20


class Command(RefusingCommand):
    help = (
        "Import conversations: the platform's own JSON lines, OpenAI chat messages as JSON lines, a data export from "
        "ChatGPT or Claude (conversations.json, or its zip file), or saved responses from mem0, Zep, Graphiti or "
        "Honcho. You can repeat the import: existing data is not added again. Invalid records are reported and "
        "skipped."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--format", choices=["auto", *formats()], default="auto")
        parser.add_argument("--user", default="", help="user_id of the person, if the file contains no user_id")
        add_application(parser)
        parser.add_argument("--agent", default="", help="agent_id of new sessions, if the file contains no agent_id")
        parser.add_argument("--dry-run", action="store_true", help="only report the number of new messages")

    def handle(self, *args: Any, **options: Any) -> str:
        self.progress_wanted = options["verbosity"] > 0
        self.reported_at = time.monotonic()
        self.source = Source(options["file"])
        chosen = recognize(self.source) if options["format"] == "auto" else formats()[options["format"]]
        found = chosen.read(self.source, _owner(options["user"], options["agent"]))
        with _rare_garbage_collection():
            imported = import_sessions(
                found,
                application=application_of(options),
                dry_run=options["dry_run"],
                on_rejected=self._reject,
                on_batch=self._report_progress,
            )
        summary = _counts(imported) + (" (dry run: nothing was changed)" if options["dry_run"] else "")
        if imported.rejected:
            raise CommandError(summary)
        return summary

    def _reject(self, rejected: RejectedRecord) -> None:
        self.stderr.write(f"{rejected.where}: {rejected.reason}")

    def _report_progress(self, imported: ImportCounts) -> None:
        is_terminal = self.stderr.isatty()
        if not self.progress_wanted or time.monotonic() < self.reported_at + SECONDS_BETWEEN[is_terminal]:
            return
        self.reported_at = time.monotonic()
        read = f"{self.source.position / MIB:,.1f} of {self.source.size / MIB:,.1f} MiB"
        self.stderr.write(f"{read}: {_counts(imported)}", ending="\r" if is_terminal else "\n")


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Run the garbage collector less often, because an import creates almost no reference cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _owner(user_id: str, agent_id: str) -> Owner:
    for name, value in (("--user", user_id), ("--agent", agent_id)):
        if value:
            public_id(name, value)
    return Owner(user_id, agent_id)


def _counts(imported: ImportCounts) -> str:
    added = f"{imported.added:,} messages added, {imported.known:,} already stored"
    if imported.facts or imported.known_facts:
        added += f", {imported.facts:,} facts added, {imported.known_facts:,} already stored"
    return f"{added}, {imported.rejected:,} records rejected"
