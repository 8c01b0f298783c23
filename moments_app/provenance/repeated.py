"""Find text that repeats retracted text: in models' answers, and in contexts for repeated queries.

A model may repeat a text from its prompt in its answer. That answer is then sent to other models, and memory is derived
from it. So `find_repeating_turns` follows each answer to the next, until no further answer repeats the text.

An answer repeats a sentence if it contains a third of the sentence's words, including a *mark*: a word that occurs in
no other message of the person and in no earlier answer. The model must have seen the text: earlier in the session, or
in a context whose receipt lists the text or memory derived from it. If the mark is a long number, the model need not
have seen the text, because the number can't come from anywhere else. A very long number suffices without other words of
the sentence.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, zip_longest
from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, Q, TextField
from django.utils.text import capfirst

from moments_app.context.assemble import ContextRequest, Envelope, assembled_context
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.receipts import StoredContext
from moments_app.models import ContextReceipt, Job, MemoryAtom, MemoryStream, Retraction
from moments_app.provenance.rewording import sentences_of
from moments_app.turns.platform_text import MEMORY_TOOLS
from sessions_app import lexemes
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.message import MessageQuerySet
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.people.provenance import Provenance, declared

MIN_SHARE = 1 / 3  # minimum share of a sentence's words in an answer that repeats the sentence
MIN_SHARE_ALONE = 0.8  # minimum share if none of the shared words is a mark (see `Sentences`)
MIN_WORDS = 2  # minimum words of a sentence; a shorter one is recognized only by a long number
MAX_FILTERED = 50  # maximum words to filter by in a query
MIN_DIGITS = 6  # minimum digits of a number that identifies a sentence together with the sentence's other words
MIN_DIGITS_ALONE = 8  # minimum digits of a number that identifies a sentence on its own
MAX_QUESTIONS = 12  # maximum questions; each requires two contexts
MAX_CHARS = 1_000  # maximum characters of a question
NEWEST_RECEIPTS = 500  # maximum receipts to search for contexts with the retracted text, newest first
ANSWERS = Q(role=Message.Role.ASSISTANT) | Q(role=Message.Role.TOOL, tool_name__in=MEMORY_TOOLS)

Sentence = Sequence[frozenset[str]]  # for each word, its possible stems

# The stems of a turn, even if its text is archived.
STEMS = Func("search_vector", function="tsvector_to_array", output_field=ArrayField(TextField()))
EACH_STEM = Func(STEMS, function="unnest", output_field=TextField())


@dataclass(frozen=True)
class RepeatingAnswer:
    """An answer that repeats retracted text."""

    turn: Message
    problem: str = ""  # why it can't be retracted; blank if it can

    @property
    def ref(self) -> str:
        return f"rem://sessions/{self.turn.session.session_id}/messages/{self.turn.sequence}"


@dataclass(frozen=True)
class RetractedText:
    """The retracted text of a person.

    Args:
        turns: primary keys of the retracted turns.
        since: when the text was first stored.
        served: the addresses of the text in contexts, and those of memory derived from the text.
        shown: for each session whose live window contains the text, the sequence number of the first retracted turn.
    """

    user: UserProfile
    texts: Sequence[str]
    turns: Collection[int]
    since: datetime
    served: Collection[str]
    shown: Mapping[int, int]


def find_repeating_turns(text: RetractedText, derived: Callable[[Sequence[Message]], Iterable[str]]) -> list[Message]:
    """Return the answers that repeat retracted text, sorted by primary key.

    Args:
        derived: returns the addresses of memory derived from some answers.
    """
    sentences = Sentences(text)
    found: dict[int, Message] = {}
    served, shown = {*text.served}, {**text.shown}
    while sentences.have_marks:
        for session, after in _served_in(text, served).items():
            shown[session] = min(after, shown.get(session, after))
        new = [turn for turn in sentences.repeated(shown) if turn.pk not in found]
        if not new:
            break
        found |= {turn.pk: turn for turn in new}
        served |= {RepeatingAnswer(turn).ref for turn in new} | {*derived(new)}
        for turn in new:
            shown[turn.session_id] = min(turn.sequence, shown.get(turn.session_id, turn.sequence))
    return [found[pk] for pk in sorted(found)]


def _served_in(text: RetractedText, served: Collection[str]) -> dict[int, int]:
    """For each session, find the first context with one of these addresses.

    Return the sequence number of the last turn before it.
    """
    receipts = ContextReceipt.objects.filter(user=text.user, created_at__gte=text.since)
    found: dict[int, int] = {}
    for session, layers, after in receipts.values_list("session_id", "refs", "after_sequence").iterator():
        if any(ref in served for refs in layers.values() for ref in refs):
            after = -1 if after is None else after
            found[session] = min(after, found.get(session, after))
    return found


class Sentences:
    """The retracted sentences. Each is identified by its *marks*, words that occur in no other text."""

    def __init__(self, text: RetractedText) -> None:
        self._text = text
        self._sentences = [_words(sentence) for each in text.texts for sentence in sentences_of(each)]
        known = self._words_elsewhere() if any(self._sentences) else set()
        self._by_mark: dict[str, list[Sentence]] = defaultdict(list)
        for sentence in self._sentences:
            for stem in (stem for word in sentence if known.isdisjoint(word) for stem in word):
                if len(sentence) >= MIN_WORDS or _digits(stem) >= MIN_DIGITS:
                    self._by_mark[stem].append(sentence)
        self._numbers = {mark for mark in self._by_mark if _digits(mark) >= MIN_DIGITS}

    @property
    def have_marks(self) -> bool:
        return bool(self._by_mark)

    def _words_elsewhere(self) -> set[str]:
        """Return the words of the person's other messages and of earlier answers."""
        others = Message.objects.all_turns().unretracted().filter(user=self._text.user).exclude(pk__in=self._text.turns)
        before = Q(arrived_at__lt=self._text.since)
        for session, first in self._text.shown.items():
            before |= Q(session=session, sequence__lt=first)
        return set(others.filter(~ANSWERS | before).values_list(EACH_STEM, flat=True).distinct())

    def repeated(self, shown: Mapping[int, int]) -> list[Message]:
        """Return the answers that repeat one of the sentences.

        Args:
            shown: the sequence number of the last turn before the model saw the text, keyed by session.
        """
        answers = Message.objects.all_turns().unretracted().filter(ANSWERS, user=self._text.user)
        answers = answers.exclude(pk__in=self._text.turns)
        found = []
        since = answers.filter(arrived_at__gte=self._text.since)
        for pk, session, sequence, stems in _with_any(self._numbers, since):
            if sequence > self._text.shown.get(session, -1) and self._has_number(stems & self._numbers, stems):
                found.append(pk)
        for pk, session, sequence, stems in _with_any(self._by_mark.keys(), answers.filter(session__in=list(shown))):
            if sequence > shown[session] and self._has_one(stems & self._by_mark.keys(), stems):
                found.append(pk)
        return list(Message.objects.filter(pk__in=found).select_related("session"))

    def occur_in(self, text: str) -> bool:
        """Return whether a text repeats a sentence, or contains most of a sentence's words or a long number from it.

        Unlike `repeated`, this also matches words that occur in another message of the person.
        """
        stems = {stem for word in _words(text) for stem in word}
        numbers = {stem for sentence in self._sentences for word in sentence for stem in word} & stems
        return (
            any(_digits(number) >= MIN_DIGITS_ALONE for number in numbers)
            or self._has_one(stems & self._by_mark.keys(), stems)
            or any(
                len(sentence) >= MIN_WORDS and _repeats(sentence, stems, MIN_SHARE_ALONE)
                for sentence in self._sentences
            )
        )

    def _has_number(self, numbers: AbstractSet[str], stems: set[str]) -> bool:
        return any(_digits(number) >= MIN_DIGITS_ALONE for number in numbers) or self._has_one(numbers, stems)

    def _has_one(self, marks: AbstractSet[str], stems: set[str]) -> bool:
        return any(_repeats(sentence, stems) for mark in marks for sentence in self._by_mark[mark])


def _words(sentence: str) -> Sentence:
    return [frozenset(word.stems) for word in lexemes.whole_words(sentence)]


def _digits(word: str) -> int:
    return sum(map(str.isdigit, word))


def _repeats(sentence: Sentence, stems: set[str], share: float = MIN_SHARE) -> bool:
    shared = sum(not word.isdisjoint(stems) for word in sentence)
    return shared >= min(len(sentence), max(MIN_WORDS, share * len(sentence)))


def _with_any(marks: AbstractSet[str], answers: MessageQuerySet) -> Iterator[tuple[int, int, int, set[str]]]:
    """Yield primary key, session, sequence number and stems of each answer that contains one of the marks."""
    if not marks:
        return
    rows = answers.annotate(stems=STEMS).order_by()
    if len(marks) <= MAX_FILTERED:  # a longer filter is slow, because PostgreSQL compares each stem with each mark
        rows = rows.filter(stems__overlap=list(marks))
    for pk, session, sequence, stems in rows.values_list("pk", "session_id", "sequence", "stems").iterator():
        if not marks.isdisjoint(stems or ()):
            yield pk, session, sequence, {*stems}


# --- queries after a retraction ---


@dataclass(frozen=True)
class Question:
    text: str
    source: str  # where the question was found
    session: Session | None = None  # the session in which it was asked before


@dataclass(frozen=True)
class Line:
    """A line of a context that still repeats retracted text."""

    question: str
    layer: str
    text: str
    ref: str


@dataclass(frozen=True)
class RetractionCheck:
    """The questions, and the lines that still repeat retracted text. Neither has duplicates."""

    questions: list[Question]
    lines: list[Line]
    waiting: int  # number of rebuilds that aren't done yet


def check_retraction(retraction: Retraction, user: UserProfile) -> RetractionCheck:
    """Query a person's memory again with questions that the retracted text answered.

    Each question is asked in its own session or the session of the retraction, and also in a new session. The contexts
    are not served, so no receipt is saved. Don't call this within a transaction.
    """
    retracted = _retracted_text(retraction, user)
    sentences = Sentences(retracted)
    questions = list(islice(_distinct(_questions(retraction, retracted, sentences)), MAX_QUESTIONS))
    last = retraction.session or user.sessions.order_by("-last_activity_at", "-id").first()
    lines: dict[str, Line] = {}
    for question in questions:
        for envelope in _contexts(user, question.text, question.session or last):
            for line in _lines(question.text, envelope):
                if line.text not in lines and sentences.occur_in(line.text):
                    lines[line.text] = line
    waiting = Job.objects.open().filter(user=user, requested_by=retraction.actor).count()
    return RetractionCheck(questions, list(lines.values()), waiting)


def _retracted_text(retraction: Retraction, user: UserProfile) -> RetractedText:
    served = {address for each in (retraction, *retraction.consequences()) for address in _addresses(each)}
    if retraction.session is None:
        texts = [
            item.data["content"]
            for item in retraction.items.withdrawn(MemoryAtom)
            if item.data.get("position") is None  # lines of texts also have other sources
        ]
        return RetractedText(user=user, texts=texts, turns=(), since=user.created_at, served=served, shown={})
    turns = list(retraction.turns().order_by("sequence"))
    return RetractedText(
        user=user,
        texts=[turn.content for turn in turns],
        turns=[turn.pk for turn in turns],
        since=min((turn.arrived_at for turn in turns), default=retraction.created_at),
        served=served,
        shown={},
    )


def _addresses(retraction: Retraction) -> Iterator[str]:
    """Yield the addresses that the retracted turns, and the rows withdrawn with them, have in contexts."""
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
        found |= {MemoryStream(stream_id=item.data["stream_id"]).uri for item in each.items.for_model(MemoryStream)}
        if each.session is not None:
            found.add(f"rem://sessions/{each.session.session_id}/summary")
    return found


def _questions(retraction: Retraction, retracted: RetractedText, sentences: Sentences) -> Iterator[Question]:
    """Yield a question from each source in turn: contexts with the text, the text itself, and each table."""
    sources = [
        _of_contexts(retraction, retracted, sentences),
        (Question(text, "The retracted text") for text in retracted.texts),
        *(_of_table(table, retraction) for table in declared() if table.questions),
    ]
    for one_of_each in zip_longest(*sources):
        yield from filter(None, one_of_each)


def _of_table(table: Provenance, retraction: Retraction) -> Iterator[Question]:
    assert table.questions is not None  # `_questions` calls this only for tables that declare questions
    for text, session in table.questions(retraction):
        yield Question(text, capfirst(str(table.model._meta.verbose_name_plural)), session)


def _of_contexts(retraction: Retraction, retracted: RetractedText, sentences: Sentences) -> Iterator[Question]:
    """Yield the queries of contexts that contained the text, or memory derived from it, newest first."""
    receipts = ContextReceipt.objects.filter(
        user=retracted.user, created_at__range=(retracted.since, retraction.created_at), sealed__isnull=False
    )
    derived, texts = {*retracted.served}, _addresses_of_texts(retraction, retracted.user)
    for receipt in receipts.select_related("session").order_by("-created_at")[:NEWEST_RECEIPTS]:
        refs = {ref for refs in receipt.refs.values() for ref in refs}
        if not refs & (derived | texts):
            continue
        context = StoredContext.from_sealed(receipt.sealed, receipt.context_id)
        if context and (derived & refs or _is_in_context(context, sentences)):
            yield Question(context.query, "Contexts that contained it", receipt.session)


def _is_in_context(context: StoredContext, sentences: Sentences) -> bool:
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
            envelope = assembled_context(user.user_id, user.application_id, session_id, request, "query")
        except BudgetTooSmall:
            continue
        if envelope:
            yield envelope


def _lines(question: str, envelope: Envelope) -> Iterator[Line]:
    for layer, items in envelope.filled.layers.items():
        if layer != "query":
            for priced in items:
                yield Line(question, layer, priced.item.text, priced.item.ref)
