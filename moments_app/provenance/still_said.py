"""`still_said`: repeat queries after a retraction, and find lines of contexts that repeat the retracted text."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from uuid import uuid4

from django.utils.text import capfirst

from moments_app.context.assemble import ContextRequest, Envelope, assembled
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.receipts import KeptContext
from moments_app.models import ContextReceipt, Job, MemoryAtom, MemoryStream, RetractedItem, Retraction
from moments_app.provenance.repeated import Retracted, Sentences
from sessions_app.models import Session, UserProfile
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.people.provenance import Provenance, declared

MAX_QUESTIONS = 12  # maximum questions; each requires two contexts
MAX_CHARS = 1_000  # maximum characters of a question
NEWEST_RECEIPTS = 500  # maximum receipts to search for contexts with the retracted text, newest first


@dataclass(frozen=True)
class Question:
    """A question that is asked again.

    Args:
        source: Where it was found.
        session: The session in which it was asked before; None if there was none.
    """

    text: str
    source: str
    session: Session | None = None


@dataclass(frozen=True)
class Line:
    """A line of a context that still repeats retracted text."""

    question: str
    layer: str
    text: str
    ref: str


@dataclass(frozen=True)
class StillSaid:
    """The result of asking again.

    Args:
        questions: The questions, without duplicates.
        lines: The repeating lines, without duplicates.
        waiting: The number of rebuilds that aren't done yet.
    """

    questions: list[Question]
    lines: list[Line]
    waiting: int


def still_said(retraction: Retraction, user: UserProfile) -> StillSaid:
    """Query a person's memory again with questions that the retracted text answered.

    Don't call it within a transaction.

    Three kinds of questions alternate: queries of contexts that contained the text, the retracted text itself, and the
    person's probes. Each question is asked in its own session or the session of the retraction, and also in a new
    session. The contexts are not served, so no receipt is saved.

    Args:
        retraction: The retraction of a person's turns or items.
    """
    said = _retracted(retraction, user)
    sentences = Sentences(said)
    questions = list(islice(_distinct(_questions(retraction, said, sentences)), MAX_QUESTIONS))
    last = retraction.session or user.sessions.order_by("-last_activity_at", "-id").first()
    lines: dict[str, Line] = {}
    for question in questions:
        for envelope in _contexts(user, question.text, question.session or last):
            for line in _lines(question.text, envelope):
                if line.text not in lines and sentences.occur_in(line.text):
                    lines[line.text] = line
    waiting = Job.objects.open().filter(user=user, requested_by=retraction.actor).count()
    return StillSaid(questions, list(lines.values()), waiting)


def _retracted(retraction: Retraction, user: UserProfile) -> Retracted:
    """Return the retracted text, from turns of a session or from directly written items."""
    served = {address for each in (retraction, *retraction.consequences()) for address in _addresses(each)}
    if retraction.session is None:
        texts = [item.data["content"] for item in _written(retraction)]
        return Retracted(user=user, texts=texts, turns=(), since=user.created_at, served=served, shown={})
    turns = list(retraction.turns().order_by("sequence"))
    return Retracted(
        user=user,
        texts=[turn.content for turn in turns],
        turns=[turn.pk for turn in turns],
        since=min((turn.arrived_at for turn in turns), default=retraction.created_at),
        served=served,
        shown={},
    )


def _addresses(retraction: Retraction) -> Iterator[str]:
    """Yield the addresses, in contexts, of the retracted turns and of the rows that were withdrawn with them."""
    for table in declared():
        if hasattr(table.model, "uri"):
            for item in retraction.items.withdrawn(table.model):
                yield from item.addresses()
    if retraction.session is not None:
        for turn in retraction.turns():
            yield f"rem://sessions/{retraction.session.session_id}/messages/{turn.sequence}"


def _addresses_of_texts(retraction: Retraction, user: UserProfile) -> set[str]:
    """Return the addresses of texts that had several sources: the profile, summaries and the texts of streams."""
    found = {user.uri}
    for each in (retraction, *retraction.consequences()):
        found |= {MemoryStream(stream_id=item.data["stream_id"]).uri for item in each.items.of(MemoryStream)}
        if each.session is not None:
            found.add(f"rem://sessions/{each.session.session_id}/summary")
    return found


def _written(retraction: Retraction) -> list[RetractedItem]:
    """Return the withdrawn statements without lines of texts, which also have other sources."""
    return [item for item in retraction.items.withdrawn(MemoryAtom) if item.data.get("position") is None]


def _questions(retraction: Retraction, said: Retracted, sentences: Sentences) -> Iterator[Question]:
    """Alternate between queries of contexts with the text, the text itself, and questions declared by tables."""
    sources = [
        _of_contexts(retraction, said, sentences),
        (Question(text, "The retracted text") for text in said.texts),
        *(_of_table(table, retraction) for table in declared() if table.questions),
    ]
    for one_of_each in zip_longest(*sources):
        yield from filter(None, one_of_each)


def _of_table(table: Provenance, retraction: Retraction) -> Iterator[Question]:
    assert table.questions is not None  # `_questions` calls this only for tables that declare questions
    for text, session in table.questions(retraction):
        yield Question(text, capfirst(str(table.model._meta.verbose_name_plural)), session)


def _of_contexts(retraction: Retraction, said: Retracted, sentences: Sentences) -> Iterator[Question]:
    """Yield the queries of contexts that contained the text, or memory derived from it, newest first."""
    receipts = ContextReceipt.objects.filter(
        user=said.user, created_at__range=(said.since, retraction.created_at), sealed__isnull=False
    )
    derived, texts = {*said.served}, _addresses_of_texts(retraction, said.user)
    for receipt in receipts.select_related("session").order_by("-created_at")[:NEWEST_RECEIPTS]:
        refs = {ref for refs in receipt.refs.values() for ref in refs}
        if not refs & (derived | texts):
            continue
        context = KeptContext.from_sealed(receipt.sealed, receipt.context_id)
        if context and (derived & refs or _is_said(context, sentences)):
            yield Question(context.query, "Contexts that contained it", receipt.session)


def _is_said(context: KeptContext, sentences: Sentences) -> bool:
    lines = (line.text for layer in context.layers if layer.name != "query" for line in layer.lines)
    return any(map(sentences.occur_in, lines))


def _distinct(questions: Iterator[Question]) -> Iterator[Question]:
    asked = set()
    for question in questions:
        text = question.text.strip()[:MAX_CHARS]
        if text and text not in asked:
            asked.add(text)
            yield replace(question, text=text)


def _contexts(user: UserProfile, question: str, session: Session | None) -> Iterator[Envelope]:
    request = ContextRequest(query=question, new_agent_id=session.agent_id if session else DEFAULT_AGENT)
    for session_id in (*([session.session_id] if session else []), f"new-{uuid4()}"):
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
