"""Reader of Honcho's API responses: messages of peers in sessions, and conclusions about a peer.

Honcho treats all peers equally. Here, `--user` is the peer whose memory is imported, and `--agent` the one that
answers. Without `--agent`, all other peers count as the agent.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from memory_extras.importers.records import checked_message, has_item_with, items, statement
from sessions_app.imports.import_sessions import Record, RejectedRecord, SessionRef, Statement
from sessions_app.imports.source import CannotImport, LocatedValue, Owner, Source, public_id, reason_of
from sessions_app.text.chat_messages import Fields

NAME = "honcho"
PAGES = "items"
DESCRIPTION = "messages with peer_id and session_id, or conclusions with observed_id (honcho)"
OTHERS = "It is about a peer other than --user."


class PeerMessage(BaseModel):
    id: str
    content: str
    peer_id: str
    session_id: str
    metadata: dict[str, Any] = {}
    created_at: str | None = None


class Conclusion(BaseModel):
    content: str
    observed_id: str
    created_at: str | None = None


def recognizes(source: Source) -> bool:
    message, conclusion = frozenset({"peer_id", "session_id", "content"}), frozenset({"observed_id", "content"})
    return has_item_with(source, PAGES, message, conclusion)


def read(source: Source, owner: Owner) -> Iterator[Record | Statement | RejectedRecord]:
    """Yield messages and conclusions, or raise `CannotImport` if `--user` is missing."""
    if not owner.user_id:
        raise CannotImport(
            "Name the person's peer with --user and the agent's with --agent, because Honcho has only peers."
        )
    return (found if isinstance(found, RejectedRecord) else _read(found, owner) for found in items(source, PAGES))


def _read(found: LocatedValue, owner: Owner) -> Record | Statement | RejectedRecord:
    try:
        if isinstance(found.value, dict) and "observed_id" in found.value:
            return _conclusion(found, owner)
        message = PeerMessage.model_validate(found.value)
        place = SessionRef(owner.user_id, public_id(f"{NAME}:{message.session_id}"), owner.agent_id, f"import:{NAME}")
        return Record(found.where, place, checked_message(_fields(message, owner)))
    except (CannotImport, ShapeError, RecursionError) as error:
        return RejectedRecord(found.where, reason_of(error))


def _fields(message: PeerMessage, owner: Owner) -> Fields:
    """Return a message's fields. If several peers are neither the person nor the agent, add the speaker's name."""
    is_answer = message.peer_id == owner.agent_id if owner.agent_id else message.peer_id != owner.user_id
    is_others = not is_answer and message.peer_id != owner.user_id
    return {
        "role": "assistant" if is_answer else "user",
        "content": message.content,
        "name": message.peer_id if is_others else "",
        "created_at": message.created_at,
        "external_id": f"{NAME}:{message.id}",
        "metadata": message.metadata,
    }


def _conclusion(found: LocatedValue, owner: Owner) -> Statement | RejectedRecord:
    conclusion = Conclusion.model_validate(found.value)
    if conclusion.observed_id != owner.user_id:
        return RejectedRecord(found.where, OTHERS)
    return statement(found.where, NAME, owner, text=conclusion.content, said_at=conclusion.created_at)
