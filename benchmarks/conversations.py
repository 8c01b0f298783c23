"""Conversations with questions about them, read from a folder of JSON files. docs/benchmarks.md has the formats."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, StringConstraints, ValidationError, model_validator

from benchmarks import published

NOT_ANSWERED = published.NOT_ANSWERED
CATEGORIES = {1: "several facts", 2: "time", 3: "world knowledge", 4: "one fact", NOT_ANSWERED: "not answered"}
MINUTE = timedelta(minutes=1)

Name = Annotated[str, StringConstraints(pattern=r"^\w[\w.:-]*$", max_length=100)]
TurnId = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Words = Annotated[str, StringConstraints(pattern=r"\S")]


class BadConversations(Exception):
    """A folder or file can't be used. The message names it."""


class Turn(BaseModel):
    """A turn of a speaker. Its id is unique in the conversation."""

    id: TurnId
    speaker: str
    text: str


class Session(BaseModel):
    """The turns of one sitting, a minute apart."""

    n: int
    at: AwareDatetime
    turns: list[Turn]


class Question(BaseModel):
    """A question, its answer, and the ids of the turns that contain the answer (the evidence).

    `kind` is the name of its category in tables. The default is the name for its number. `asked_at` is the date of the
    question, as written in the file. Blank: it has none.
    """

    q: Words
    a: str | int | float = ""
    category: int
    evidence: list[str]
    kind: str = ""
    asked_at: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether the conversation contains the answer."""
        return self.category != NOT_ANSWERED

    @property
    def is_scored(self) -> bool:
        """Whether the question has an answer and known evidence."""
        return self.is_answered and bool(self.evidence)

    @property
    def label(self) -> str:
        return self.kind or CATEGORIES.get(self.category, f"category {self.category}")


class Conversation(BaseModel):
    """Two speakers, their turns, and the questions about them.

    `names_speakers`: Each message starts with the speaker's name, because both speakers are people.
    """

    id: Name
    speakers: tuple[str, str]
    sessions: list[Session]
    questions: list[Question]
    names_speakers: bool = True

    @property
    def turns(self) -> Iterator[tuple[Session, Turn]]:
        """Each turn with its session."""
        return ((session, turn) for session in self.sessions for turn in session.turns)

    @property
    def scored(self) -> list[Question]:
        """The questions that are scored."""
        return [question for question in self.questions if question.is_scored]

    def messages(self, session: Session) -> list[dict[str, Any]]:
        """Return the turns of a session in the format of the API. The first speaker is the user."""
        return [
            {
                "role": "user" if turn.speaker == self.speakers[0] else "assistant",
                "content": f"{turn.speaker}: {turn.text}" if self.names_speakers else turn.text,
                "created_at": (session.at + number * MINUTE).isoformat(),
                "external_id": turn.id,
            }
            for number, turn in enumerate(session.turns)
        ]

    @model_validator(mode="after")
    def _ids_are_consistent(self) -> Self:
        turns = [turn for _session, turn in self.turns]
        known = {turn.id for turn in turns}
        if len(known) < len(turns):
            raise ValueError("Two turns have the same id")
        if len({session.n for session in self.sessions}) < len(self.sessions):
            raise ValueError("Two sessions have the same number")
        if strangers := {turn.speaker for turn in turns} - set(self.speakers):
            raise ValueError(f"{min(strangers)} speaks, but is not among the speakers")
        if missing := {turn for question in self.questions for turn in question.evidence} - known:
            raise ValueError(f"{min(missing)} is evidence, but there is no such turn")
        return self


def read_folder(folder: Path) -> list[Conversation]:
    """Return the conversations in a folder's `*.json`, in the order of the file names.

    Raises:
        BadConversations: There is nothing to score, or a file has another format.
    """
    if not folder.is_dir():
        raise BadConversations(f"{folder}: there is no such folder.")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise BadConversations(f"{folder}: there is no *.json in it.")
    by_id: dict[str, Conversation] = {}
    for path in paths:
        for conversation in _read(path):
            if conversation.id in by_id:
                raise BadConversations(f"{path}: another conversation has the id {conversation.id} too.")
            by_id[conversation.id] = conversation
    if not any(conversation.scored for conversation in by_id.values()):
        raise BadConversations(f"{folder}: no question in it has evidence.")
    return list(by_id.values())


def _read(path: Path) -> list[Conversation]:
    """Return the conversations of a file: one in our format, or all of a published benchmark."""
    try:
        content = json.loads(path.read_bytes())
        items = published.conversations(content) if isinstance(content, list) else [content]
        return [Conversation.model_validate(item) for item in items]
    except OSError as error:
        raise BadConversations(f"{path}: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        details = [str(path), place, first["msg"].removeprefix("Value error, ")]
        raise BadConversations(f"{': '.join(filter(None, details))}.") from error
    except json.JSONDecodeError as error:
        raise BadConversations(f"{path}: Invalid JSON: {error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadConversations(f"{path}: {error!r}.") from error
