"""Convert the profile lines and phrases of earlier releases to statements."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moments_app.engines.extractive.language import words
from moments_app.engines.statements import kind_of, statement_of, worth_of
from moments_app.engines.statements.dates import start_in
from moments_app.engines.words import LIST_MARK, memory_lines
from moments_app.models.atom import INTEREST, SUMMARY, TOPIC, content_hash, profile_sentence

FEW = 3  # a line with at most this number of words needs the heading of its list to make sense
BY_UPGRADE = "import:profile"  # `ended_by` of a line if the actor is unknown
_DAY = re.compile(r" \((\d{4}-\d\d-\d\d)\)$")
_BY_HAND = ("key", "operator")  # prefixes of the actors of lines that no engine wrote

Columns = dict[str, Any]


@dataclass(frozen=True)
class FormerLine:
    text: str
    heading: str = ""
    sources: Sequence[int] = ()  # primary keys of the line's turns
    actor: str = ""  # the writer; in an export, only the kind of writer
    is_pinned: bool = False  # whether an operator replaced an engine's line with it
    engine: str = ""  # blank for lines that people wrote
    created_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    ended_at: datetime | None = None
    ended_by: str = ""

    @property
    def is_by_hand(self) -> bool:
        return self.is_pinned or self.actor.startswith(_BY_HAND)


@dataclass(frozen=True)
class FormerProfile:
    summary: str
    lines: Sequence[FormerLine]  # its stored lines, in their order
    interests: Sequence[str]
    preferred_topics: Sequence[str]
    # primary keys of the turns of a phrase, keyed by attribute and lowercase phrase
    sources: Mapping[tuple[str, str], Sequence[int]]
    updated_at: datetime


def said_in(profile: FormerProfile) -> list[str]:
    """Return the hashes of everything that a profile says, to find statements that say the same thing."""
    return [columns["content_hash"] for columns in statements_of(profile, ())]


def statements_of(
    profile: FormerProfile, known: Collection[str], holding: Collection[str] | None = None
) -> list[Columns]:
    """Return the columns of the statements that replace a profile's lines and phrases.

    Args:
        known: hashes of current and ended statements, which are not added again.
        holding: hashes of current statements; None: same as `known`. Text written by people is added unless it is in
            `holding`.
    """
    current_hashes = known if holding is None else holding
    lines = _with_text(profile)
    written = [line for line in lines if line.is_by_hand and not line.sources and not line.ended_at]
    found = [_opening(written)] if written else []
    found += [_of_line(line) for line in lines if line not in written]
    for attribute, phrases in ((INTEREST, profile.interests), (TOPIC, profile.preferred_topics)):
        found += [_of_phrase(attribute, text, profile) for text in phrases if text.strip()]
    current = {columns["content_hash"]: columns for columns in reversed(found) if columns["state"] == "active"}
    ended = [columns for columns in found if columns["state"] == "ended" and columns["content_hash"] not in current]
    return [
        columns
        for columns in (*reversed(current.values()), *ended)
        if columns["content_hash"] not in (current_hashes if columns["is_pinned"] else known)
    ]


def _with_text(profile: FormerProfile) -> list[FormerLine]:
    """Return the stored lines, followed by further lines of the profile's text."""
    texts = {line.text for line in profile.lines}
    missing = [line for line in memory_lines(profile.summary) if line.text not in texts]
    return [*profile.lines, *(FormerLine(line.text, line.heading, created_at=profile.updated_at) for line in missing)]


def _opening(lines: Sequence[FormerLine]) -> Columns:
    text = "\n".join(line.text for line in lines)
    last = max(lines, key=lambda line: line.created_at)
    return _columns(text, last.created_at) | {
        "attribute": SUMMARY,
        "subject": "",
        "value": "",
        "kind": "other",
        "is_pinned": True,
        "written_by": last.actor,
    }


def _of_line(line: FormerLine) -> Columns:
    text, created_at = _alone(line.text, line.heading), line.created_at
    if day := _DAY.search(text):
        text, created_at = text[: day.start()], datetime.fromisoformat(f"{day[1]}T12:00:00+00:00")
    is_over = line.ended_at is not None
    return _columns(text, min(created_at, line.created_at)) | {
        "is_pinned": line.is_by_hand and not is_over,
        "source_message_ids": list(line.sources),
        "engine": "" if line.is_by_hand else line.engine,
        "written_by": line.actor if line.is_by_hand else "",
        "state": "ended" if is_over else "active",
        "valid_until": line.ended_at,
        "ended_at": line.ended_at,
        "ended_by": (line.ended_by or BY_UPGRADE) if is_over else "",
    }


def _alone(text: str, heading: str) -> str:
    line = text.removeprefix(LIST_MARK).strip()
    return f"{heading} {line}" if heading and len(words(_DAY.sub("", line))) <= FEW else line


def _of_phrase(attribute: str, text: str, profile: FormerProfile) -> Columns:
    return _columns(profile_sentence(attribute, text.strip()), profile.updated_at) | {
        "attribute": attribute,
        "subject": "",
        "value": text.strip()[:255],
        "kind": "preference",
        "source_message_ids": list(profile.sources.get((attribute, text.casefold()), ())),
    }


def _columns(text: str, formed_at: datetime) -> Columns:
    statement = statement_of(text)
    begins = formed_at if statement and statement.is_new else None
    return {
        "atom_type": "fact",
        "content": text,
        "content_hash": content_hash(text),
        "kind": kind_of(text),
        "about_kind": "user",
        "speaker": "",
        "state": "active",
        "formed_at": formed_at,
        "subject": statement.subject[:255] if statement else "",
        "attribute": statement.attribute[:64] if statement else "",
        "value": statement.value[:255] if statement and not statement.is_over else "",
        "valid_from": (start_in(text, formed_at, UTC) or begins) if statement else None,
        "worth": worth_of(text),
        "is_pinned": False,
        "source_message_ids": [],
        "engine": "",
        "written_by": "",
        "valid_until": None,
        "ended_at": None,
        "ended_by": "",
    }
