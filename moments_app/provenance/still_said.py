"""`still_said`: ask the questions of a retraction again, and find lines of contexts that repeat the retracted text."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from uuid import uuid4

from moments_app.context.assemble import BudgetTooSmall, Envelope
from moments_app.context.kept import KeptContext
from moments_app.context.request import ContextRequest
from moments_app.context.serve import assembled
from moments_app.models import ContextReceipt, Entity, Job, MemoryAtom, Moment, RetractedItem, Retraction
from moments_app.provenance.repeated import Retracted, Sentences
from moments_app.provenance.withdrawal import withdrawals
from sessions_app.models import UserProfile

MOST_QUESTIONS = 5  # each takes two contexts
MOST_CHARS = 1_000  # of a question
ADDRESSED_BY: dict[type[MemoryAtom | Moment | Entity], str] = {
    MemoryAtom: "atom_id",
    Moment: "key",
    Entity: "entity_id",
}  # the field of a row's address
NEWEST_RECEIPTS = 500  # that are searched for contexts with the retracted text


@dataclass(frozen=True)
class Line:
    """A line of a context that still repeats retracted text.

    Args:
        question: The question that the context was for.
        layer: The name of its layer.
        text: The line.
        ref: Its address.
    """

    question: str
    layer: str
    text: str
    ref: str


@dataclass(frozen=True)
class StillSaid:
    """The result of asking again.

    Args:
        questions: The questions that were asked.
        lines: The repeating lines, without duplicates.
        waiting: The number of rebuilds that aren't done yet.
    """

    questions: list[str]
    lines: list[Line]
    waiting: int


def still_said(retraction: Retraction, user: UserProfile) -> StillSaid:
    """Query a person's memory again with questions that the retracted text answered.

    Don't call it within a transaction.

    Each question is asked in the session of the retraction and in a new one. The contexts are not served, so no receipt
    is saved. The questions are those of contexts that had the text, the retracted text itself, and the person's probes.

    Args:
        retraction: The retraction of a person's turns or items.
        user: The person.
    """
    said = _retracted(retraction, user)
    sentences = Sentences(said)
    questions = list(islice(_distinct(_questions(retraction, said)), MOST_QUESTIONS))
    lines: dict[str, Line] = {}
    for question in questions:
        for envelope in _contexts(retraction, user, question):
            for line in _lines(question, envelope):
                if line.text not in lines and sentences.are_said_in(line.text):
                    lines[line.text] = line
    waiting = Job.objects.open().filter(user=user, requested_by=retraction.actor).count()
    return StillSaid(questions, list(lines.values()), waiting)


def _retracted(retraction: Retraction, user: UserProfile) -> Retracted:
    """Return the retracted text: turns of a session, or directly written items."""
    served = {
        table(**{name: item.data[name]}).uri
        for table, name in ADDRESSED_BY.items()
        for item in retraction.items.withdrawn(table)
    }
    if retraction.session is None:
        items = [(item, table) for table in (MemoryAtom, Entity) for item in _written(retraction, table)]
        texts = [item.data[name] for item, table in items for name in table.SEARCHED]
        return Retracted(user=user, texts=texts, turns=(), since=user.created_at, served=served, shown={})
    turns = list(retraction.turns().order_by("sequence"))
    messages = f"rem://sessions/{retraction.session.session_id}/messages"
    return Retracted(
        user=user,
        texts=[turn.content for turn in turns],
        turns=[turn.pk for turn in turns],
        since=min((turn.arrived_at for turn in turns), default=retraction.created_at),
        served=served | {f"{messages}/{turn.sequence}" for turn in turns},
        shown={},
    )


def _written(retraction: Retraction, table: type[MemoryAtom | Entity]) -> list[RetractedItem]:
    """Return the withdrawn rows of a table without lines of texts, which also have other sources."""
    return [item for item in retraction.items.withdrawn(table) if item.data.get("position") is None]


def _questions(retraction: Retraction, said: Retracted) -> Iterator[str]:
    """Yield the questions of contexts that had the text, those of extras, and the text itself."""
    receipts = ContextReceipt.objects.filter(
        user=said.user, created_at__range=(said.since, retraction.created_at), sealed__isnull=False
    )
    for receipt in receipts.order_by("-created_at")[:NEWEST_RECEIPTS]:
        if any(ref in said.served for refs in receipt.refs.values() for ref in refs):
            context = KeptContext.from_sealed(receipt.sealed, receipt.context_id)
            if context:
                yield context.query
    yield from said.texts
    for withdrawal in withdrawals():
        yield from withdrawal.questions(retraction)


def _distinct(questions: Iterator[str]) -> Iterator[str]:
    return iter(dict.fromkeys(question.strip()[:MOST_CHARS] for question in questions if question.strip()))


def _contexts(retraction: Retraction, user: UserProfile, question: str) -> Iterator[Envelope]:
    session = retraction.session or user.sessions.order_by("-last_activity_at", "-id").first()
    if session is None:
        return
    for session_id in (session.session_id, f"new-{uuid4()}"):
        request = ContextRequest(query=question, new_agent_id=session.agent_id)
        try:
            envelope = assembled(user.user_id, user.application_id, session_id, request, "query")
        except BudgetTooSmall:
            continue
        if envelope:
            yield envelope


def _lines(question: str, envelope: Envelope) -> Iterator[Line]:
    for layer, items in envelope.filled.layers.items():
        if layer != "query":
            for priced in items:
                yield Line(question, layer, priced.item.text, priced.item.ref)
