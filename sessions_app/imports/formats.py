"""Importing conversations: the registry of file formats.

The reader of a format yields the messages in a file with their sessions (`Record`), facts without a message
(`Statement`), and records that it can't import (`Rejected`). It writes nothing. To add a format, write a module with
`LOOKED_FOR`, `recognizes` and `read`, and register it in the `ready` method of an app.
"""

from collections.abc import Iterator
from typing import Protocol

from sessions_app.imports import jsonl
from sessions_app.imports.import_sessions import Record, Rejected, Statement
from sessions_app.imports.source import Owner, Source, Unreadable


class Format(Protocol):
    """A module that reads a format. `LOOKED_FOR` describes how it recognizes the format."""

    @property
    def LOOKED_FOR(self) -> str: ...  # noqa: N802 (a module's constant)
    def recognizes(self, source: Source) -> bool: ...
    def read(self, source: Source, owner: Owner) -> Iterator[Record | Statement | Rejected]: ...


FORMATS: dict[str, Format] = {"jsonl": jsonl}  # in the order in which they are tried


def register_format(name: str, reader: Format) -> None:
    FORMATS[name] = reader


def recognize(source: Source) -> Format:
    """Return the format that recognizes the start of a file. Raise Unreadable if none does."""
    for known in FORMATS.values():
        if known.recognizes(source):
            return known
    looked_for = "; ".join(known.LOOKED_FOR for known in FORMATS.values())
    raise Unreadable(f"{source.path} has no known format. Known formats: {looked_for}.")
