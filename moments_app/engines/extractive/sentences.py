"""The sentences of a window of turns, what they are chosen by, and how the chosen ones are written down."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from moments_app.engines.extractive.language import content_words, language_of, sentences
from moments_app.engines.transcript import Turn

ROLE_WEIGHT = {"user": 1.0, "assistant": 0.75, "tool": 0.3}
VOCABULARY_CHARS = 20_000  # of a turn whose words are counted
SAID = 0.9  # of the words of what is said by a text already

# "Maria: Hey John!" as a transcript of two people has it.
_SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{1,30}(?: [^\W\d_][\w'’.-]{1,30})?):\s+(?=\S)")
_PLAN = re.compile(
    r"\b(will|going to|plan|need to|have to|decided|booked|ordered|moved|deadline|appointment|due)\b", re.I
)


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the words by which it is chosen.

    Args:
        turn: where it stands.
        text: without the speaker's name.
        terms: its content words.
        speaker: who says it.
    """

    turn: Turn
    text: str
    terms: frozenset[str]
    speaker: str

    @property
    def spoken(self) -> str:
        return f"{self.speaker}: {self.text}"

    @cached_property
    def worth(self) -> float:
        """What a new word in it counts: by who says it and the sentence's length; plans more, questions less."""
        plan = 1.2 if _PLAN.search(self.text) or re.search(r"\d", self.text) else 1.0
        question = 0.3 if self.text.rstrip().endswith("?") else 1.0
        return plan * question * ROLE_WEIGHT[self.turn.role] / (len(self.text.split()) + 3)


@dataclass(frozen=True)
class Window:
    """Turns that were read.

    Args:
        turns: oldest first.
        language: of most of them.
        speech: who speaks in each, and what.
        vocabulary: the content words of each.
        weights: of words, by how few turns have them.
    """

    turns: Sequence[Turn]
    language: str
    speech: list[tuple[str, str]]
    vocabulary: list[list[str]]
    weights: dict[str, float]

    def sentences_of(self, position: int) -> list[Sentence]:
        """Return the sentences of one turn."""
        speaker, text = self.speech[position]
        return [
            Sentence(self.turns[position], *self._read_once(sentence), speaker)
            for sentence in sentences(text, self.language)
        ]

    def _read_once(self, sentence: str) -> tuple[str, frozenset[str]]:
        """Return a sentence and its content words, which are read and kept once however often it is said."""
        if sentence not in self._known:
            self._known[sentence] = sentence, frozenset(content_words(sentence, self.language))
        return self._known[sentence]

    @cached_property
    def _known(self) -> dict[str, tuple[str, frozenset[str]]]:
        return {}

    @cached_property
    def by_turn(self) -> list[list[Sentence]]:
        """The sentences of each turn."""
        return [self.sentences_of(position) for position in range(len(self.turns))]

    @property
    def sentences(self) -> list[Sentence]:
        """All sentences."""
        return [sentence for group in self.by_turn for sentence in group]


def read(turns: Sequence[Turn]) -> Window:
    """Return the window of these turns."""
    language = language_of(turn.content for turn in turns)
    speech = _by_speaker(turns)
    vocabulary = [content_words(text[:VOCABULARY_CHARS], language) for _, text in speech]
    return Window(turns, language, speech, vocabulary, _weights(vocabulary))


def _by_speaker(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """Return who speaks in each turn, and its text, without the name in front if most turns have one."""
    matches = [_SPEAKER.match(turn.content) if turn.role != "tool" else None for turn in turns]
    named = sum(map(bool, matches)) > len(turns) / 2
    return [
        (match[1], turn.content[match.end() :]) if match and named else (_role_name(turn), turn.content)
        for turn, match in zip(turns, matches, strict=True)
    ]


def _role_name(turn: Turn) -> str:
    return {"user": "User", "assistant": "Assistant"}.get(turn.role, turn.tool_name or "Tool")


def _weights(vocabulary: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word over the turns of the window, smoothed."""
    count = len(vocabulary)
    frequency = Counter(word for turn in vocabulary for word in set(turn))
    return {word: math.log((1 + count) / (1 + n)) + 1 for word, n in frequency.items()}


def telling(own: Sequence[Sentence], weights: dict[str, float], left: int) -> list[Sentence]:
    """Choose greedily the sentences that say most that is new for their length, up to `left` words, in order.

    Budgeted coverage as in Lin & Bilmes 2011 (https://aclanthology.org/P11-1052): the gain of a sentence is the weight
    of its words that no chosen one has. It never grows, so a gain from before is a bound, and only the sentence with
    the highest is weighed again (Minoux 1978, https://doi.org/10.1007/BFb0006528).
    """
    covered: set[str] = set()
    chosen: list[int] = []
    waiting = [(-gain(sentence, covered, weights), n) for n, sentence in enumerate(own)]
    heapify(waiting)
    while waiting and left > 0:
        bound, best = heappop(waiting)
        now = -gain(own[best], covered, weights)
        cost = len(own[best].text.split()) + 1
        if bound < now < 0:
            heappush(waiting, (now, best))
        elif now < 0 and cost <= left:
            chosen.append(best)
            covered |= own[best].terms
            left -= cost
    return [own[n] for n in sorted(chosen)]


def gain(sentence: Sentence, covered: set[str], weights: dict[str, float]) -> float:
    """Return what a sentence says that is new, for its length.

    The sum is exact before it is rounded: it must not depend on the order of a set, nor grow when words are taken away.
    """
    return math.fsum(weights.get(term, 0.0) for term in sentence.terms - covered) * sentence.worth


def says(said: Set[str], own: Set[str]) -> bool:
    """Tell whether the words of a text have nearly all of another's own."""
    return bool(own) and len(own & said) >= SAID * len(own)


def dated(chosen: Iterable[Sentence]) -> str:
    """Return lines of speech, each under its date: "yesterday" means nothing without."""
    lines: list[str] = []
    date = speaker = ""
    for sentence in chosen:
        day = f"[{sentence.turn.created_at:%Y-%m-%d}]"
        if day != date:
            lines.append(f"{day} {sentence.spoken}")
        elif sentence.speaker != speaker:
            lines.append(sentence.spoken)
        else:
            lines[-1] += f" {sentence.text}"
        date, speaker = day, sentence.speaker
    return "\n".join(lines)[:6_000]


def fallback(turn: Turn) -> str:
    """Return a summary of a turn without a sentence: its beginning."""
    return " ".join(turn.content[:200].split()) or "Turns without text."
