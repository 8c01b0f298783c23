"""`answers_repeating`: find models' answers that repeat retracted text.

A model may repeat a text from its prompt in its answer. That answer is then sent to other models, and memory is derived
from it. The search therefore follows each answer to the next, until no further answer repeats the text.

An answer repeats a sentence if it contains a third of the sentence's words, and one of them occurs in no other message
of the person and in no earlier answer. The model must have seen the text: earlier in the session, or in a context whose
receipt lists the text or memory derived from it. If the word is a long number, the model need not have seen the text,
because the number can't come from anywhere else. A very long number suffices without other words of the sentence.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, Q, TextField

from moments_app.models import ContextReceipt
from moments_app.provenance.rewording import sentences_of
from moments_app.turns.platform_text import MEMORY_TOOLS
from sessions_app import lexemes
from sessions_app.models import Message, UserProfile
from sessions_app.models.message import MessageQuerySet

SHARE = 1 / 3  # minimum share of a sentence's words in an answer that repeats it
MOST = 0.8  # share of a sentence's words in a text that says the same thing, even if other messages have the words too
FEWEST = 2  # minimum words of a sentence; a shorter one is recognized only by a long number
FEW = 50  # maximum number of words in the filter of the query
DIGITS = 6  # minimum digits of a number that identifies a sentence together with other words of it
MANY_DIGITS = 8  # minimum digits of a number that identifies a sentence alone
ANSWERS = Q(role=Message.Role.ASSISTANT) | Q(role=Message.Role.TOOL, tool_name__in=MEMORY_TOOLS)

Sentence = Sequence[frozenset[str]]  # for each word, its possible stems

# The stems of a turn, even if its text is archived.
STEMS = Func("search_vector", function="tsvector_to_array", output_field=ArrayField(TextField()))
EACH_STEM = Func(STEMS, function="unnest", output_field=TextField())


@dataclass(frozen=True)
class Answer:
    """An answer that repeats retracted text.

    Args:
        turn: the turn, with its session.
        problem: why it can't be retracted; blank if it can.
    """

    turn: Message
    problem: str = ""

    @property
    def ref(self) -> str:
        return f"rem://sessions/{self.turn.session.session_id}/messages/{self.turn.sequence}"


@dataclass(frozen=True)
class Retracted:
    """The retracted text.

    Args:
        user: the person whose memory contained the text.
        turns: primary keys of the retracted turns.
        since: when the text was first stored.
        served: the addresses of the text in contexts, and those of memory derived from the text.
        shown: the sequence of the first retracted turn, keyed by the session whose live window contains the text.
    """

    user: UserProfile
    texts: Sequence[str]
    turns: Collection[int]
    since: datetime
    served: Collection[str]
    shown: Mapping[int, int]


def answers_repeating(said: Retracted, derived: Callable[[Sequence[Message]], Iterable[str]]) -> list[Message]:
    """Return the answers that repeat retracted text, sorted by primary key.

    Args:
        derived: returns the addresses of memory derived from some answers.
    """
    sentences = Sentences(said)
    found: dict[int, Message] = {}
    served, shown = {*said.served}, {**said.shown}
    while sentences.have_marks:
        for session, after in _served_in(said, served).items():
            shown[session] = min(after, shown.get(session, after))
        new = [turn for turn in sentences.repeated(shown) if turn.pk not in found]
        if not new:
            break
        found |= {turn.pk: turn for turn in new}
        served |= {Answer(turn).ref for turn in new} | {*derived(new)}
        for turn in new:
            shown[turn.session_id] = min(turn.sequence, shown.get(turn.session_id, turn.sequence))
    return [found[pk] for pk in sorted(found)]


def _served_in(said: Retracted, served: Collection[str]) -> dict[int, int]:
    """Return the last turn before the first context with one of these addresses, keyed by session."""
    receipts = ContextReceipt.objects.filter(user=said.user, created_at__gte=said.since)
    found: dict[int, int] = {}
    for session, layers, after in receipts.values_list("session_id", "refs", "after_sequence").iterator():
        if any(ref in served for refs in layers.values() for ref in refs):
            after = -1 if after is None else after
            found[session] = min(after, found.get(session, after))
    return found


class Sentences:
    """The retracted sentences. Each is identified by its *marks*, words that occur in no other text."""

    def __init__(self, said: Retracted) -> None:
        self._said = said
        self._sentences = [_words(sentence) for text in said.texts for sentence in sentences_of(text)]
        known = self._words_elsewhere() if any(self._sentences) else set()
        self._by_mark: dict[str, list[Sentence]] = defaultdict(list)
        for sentence in self._sentences:
            for stem in (stem for word in sentence if known.isdisjoint(word) for stem in word):
                if len(sentence) >= FEWEST or _digits(stem) >= DIGITS:
                    self._by_mark[stem].append(sentence)
        self._numbers = {mark for mark in self._by_mark if _digits(mark) >= DIGITS}

    @property
    def have_marks(self) -> bool:
        return bool(self._by_mark)

    def _words_elsewhere(self) -> set[str]:
        """Return the words of the person's other messages and of earlier answers."""
        others = Message.objects.said().believed().filter(user=self._said.user).exclude(pk__in=self._said.turns)
        before = Q(arrived_at__lt=self._said.since)
        for session, first in self._said.shown.items():
            before |= Q(session=session, sequence__lt=first)
        return set(others.filter(~ANSWERS | before).values_list(EACH_STEM, flat=True).distinct())

    def repeated(self, shown: Mapping[int, int]) -> list[Message]:
        """Return the answers that repeat one of the sentences.

        Args:
            shown: the last turn before the model saw the text, keyed by session.
        """
        answers = Message.objects.said().believed().filter(ANSWERS, user=self._said.user)
        answers = answers.exclude(pk__in=self._said.turns)
        found = []
        since = answers.filter(arrived_at__gte=self._said.since)
        for pk, session, sequence, stems in _with_any(self._numbers, since):
            if sequence > self._said.shown.get(session, -1) and self._has_number(stems & self._numbers, stems):
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
            any(_digits(number) >= MANY_DIGITS for number in numbers)
            or self._has_one(stems & self._by_mark.keys(), stems)
            or any(len(sentence) >= FEWEST and _is_said(sentence, stems, MOST) for sentence in self._sentences)
        )

    def _has_number(self, numbers: AbstractSet[str], stems: set[str]) -> bool:
        return any(_digits(number) >= MANY_DIGITS for number in numbers) or self._has_one(numbers, stems)

    def _has_one(self, marks: AbstractSet[str], stems: set[str]) -> bool:
        return any(_is_said(sentence, stems) for mark in marks for sentence in self._by_mark[mark])


def _words(sentence: str) -> Sentence:
    return [frozenset(word.stems) for word in lexemes.whole_words(sentence)]


def _digits(word: str) -> int:
    return sum(map(str.isdigit, word))


def _is_said(sentence: Sentence, stems: set[str], share: float = SHARE) -> bool:
    shared = sum(not word.isdisjoint(stems) for word in sentence)
    return shared >= min(len(sentence), max(FEWEST, share * len(sentence)))


def _with_any(marks: AbstractSet[str], answers: MessageQuerySet) -> Iterator[tuple[int, int, int, set[str]]]:
    """Yield the primary key, session, sequence and words of each answer that contains one of the marks."""
    if not marks:
        return
    rows = answers.annotate(stems=STEMS).order_by()
    if len(marks) <= FEW:  # because PostgreSQL compares each stem with each mark
        rows = rows.filter(stems__overlap=list(marks))
    for pk, session, sequence, stems in rows.values_list("pk", "session_id", "sequence", "stems").iterator():
        if not marks.isdisjoint(stems or ()):
            yield pk, session, sequence, {*stems}
