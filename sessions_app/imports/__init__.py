"""Readers of other systems' conversations: a module a format, and the table of them.

A reader takes a file and yields its messages, each with its place, or why one is rejected; it writes nothing. To add a
format, write a module with `LOOKED_FOR`, `recognises` and `read`, and add it to `FORMATS`.
"""

from collections.abc import Iterator
from typing import Protocol

from sessions_app.imports import chatgpt, claude, jsonl, openai
from sessions_app.imports.import_sessions import Record, Rejected
from sessions_app.imports.records import CannotImport, Owner, public_id
from sessions_app.imports.source import Source, Unreadable

__all__ = ["FORMATS", "CannotImport", "Format", "Owner", "Source", "Unreadable", "public_id", "recognise"]


class Format(Protocol):
    """A module that reads a format; LOOKED_FOR says by what it is recognised."""

    @property
    def LOOKED_FOR(self) -> str: ...  # noqa: N802 (a module's constant)
    def recognises(self, source: Source) -> bool: ...
    def read(self, source: Source, owner: Owner) -> Iterator[Record | Rejected]: ...


FORMATS: dict[str, Format] = {"jsonl": jsonl, "openai": openai, "chatgpt": chatgpt, "claude": claude}


def recognise(source: Source) -> Format:
    """The format of a file, by its beginning.

    Raises:
        Unreadable: it is none of those there are.
    """
    for known in FORMATS.values():
        if known.recognises(source):
            return known
    looked_for = "; ".join(known.LOOKED_FOR for known in FORMATS.values())
    raise Unreadable(f"{source.path} begins as none of the formats there are. Looked for: {looked_for}.")
