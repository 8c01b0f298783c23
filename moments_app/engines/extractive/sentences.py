"""The verbatim sentences of a window of turns: which of them make sense alone, and how they are chosen."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import groupby

from moments_app.engines.extractive.kinds import (
    DURABLE,
    INSTRUCTION,
    is_advice,
    is_of_speaker,
    is_reaction,
    kinds_of,
    needs_context,
    nicknames,
    without_openers,
)
from moments_app.engines.extractive.language import ENGLISH, content_words, is_wide, language_of, sentences
from moments_app.engines.statements import is_question, is_unreal, statement_of
from moments_app.engines.statements.dates import is_dated, with_dates
from moments_app.engines.transcript import Turn

ROLE_WEIGHT = {"user": 1.0, "assistant": 0.75, "tool": 0.3}
VOCABULARY_CHARS = 20_000  # characters of a turn whose words are counted
DATED, PARTICULAR = 1.7, 1.3  # factors for a sentence with a time, and with a number or a name
VAGUE = 0.4  # factor for a sentence that can't be understood alone
MIN_WORDS = 3  # minimum words of a meaningful sentence
MIN_UNREAD = 6  # minimum words in another language
MIN_CHARACTERS = 12  # minimum characters in a script without spaces
MIN_LASTING = 4  # minimum in such a script for a sentence with lasting information about its speaker
MIN_LETTERS = 0.6  # minimum share of letters and spaces in a sentence; less is code or a table

# The places where a sentence continues with the same subject, and the words for its speaker.
# "Maria: Hey John!", as in a transcript of two people. A single letter is no name: "Q: Who? A: Me."
_SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{1,30}(?: [^\W\d_][\w'’.-]{1,30})?):\s+(?=\S)")
_AND = r"(?:and|but|und|aber|y|pero|et|mais|и|а)"
_PIECE = re.compile(rf"(?<=[,;，；])(?=.)|(?=\s{_AND}\s)")
_SUBJECT = re.compile(r"\b(?:I(?:'m|’m)?|[Ii]ch|[Jj]e|[Jj]'|Я|я)(?=\W)|我")
_LOOSE_END = re.compile(r"[\s,;，；]+$")
_JOINT = re.compile(rf"^\s*(?:{_AND}\s+)?")
_PARTICULAR = re.compile(r"\d|(?<=[a-z,] )[A-Z][a-z]")  # a number or a name


@dataclass(frozen=True)
class Speaker:
    """The speaker of a sentence.

    Args:
        name: the name; "User", "Assistant" or the name of the tool if it is unknown.
        is_named: whether the application or the transcript names them.
    """

    name: str
    is_named: bool


USER, ASSISTANT = Speaker("User", is_named=False), Speaker("Assistant", is_named=False)


@dataclass(frozen=True)
class Sentence:
    """A verbatim sentence, and the words by which it is chosen.

    Args:
        place: its place in the turn.
        text: its text, word for word.
        core: its text without leading interjections and forms of address; used for analysis, never shown.
        terms: its content words.
        language: the language of its turn.
    """

    turn: Turn
    place: int
    text: str
    core: str
    terms: frozenset[str]
    speaker: Speaker
    language: str

    @cached_property
    def quote(self) -> str:
        """The sentence as a memory: its speaker, its words, and in brackets the dates that they refer to."""
        said = with_dates(self.text, self.turn.created_at.date())
        return said if self.turn.role == "tool" else f"{self.speaker.name}: {said}"

    @cached_property
    def length(self) -> int:
        """The number of words of its quote, as streams count them."""
        return len(self.quote.split())

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of lasting information about the speaker, most durable first."""
        return kinds_of(self.core, self.language)

    @property
    def is_of_speaker(self) -> bool:
        return is_of_speaker(self.core, self.language)

    @property
    def is_of_person(self) -> bool:
        """True if its speaker is a person, not an assistant or a tool."""
        return self.turn.role == "user" or (self.turn.role == "assistant" and self.speaker.is_named)

    @property
    def is_question(self) -> bool:
        return is_question(self.text)

    @cached_property
    def is_statement(self) -> bool:
        """True if it is long enough, mostly letters, and neither a question nor a reaction."""
        if self.is_question or self.is_reaction or not self._is_long_enough:
            return False
        letters = sum(character.isalpha() or character.isspace() for character in self.text)
        return letters >= MIN_LETTERS * len(self.text)

    @property
    def is_reaction(self) -> bool:
        """True if it is only a reaction, advice or small talk, which is recognized in English only."""
        if self.language != ENGLISH or self.attribute or INSTRUCTION in self.kinds:
            return False
        return is_reaction(self.core) or is_advice(self.core)

    @property
    def _is_long_enough(self) -> bool:
        """True if it has enough words. The minimum is higher if small talk can't be recognized by its words."""
        if is_wide(self.text):
            return len(self.text) >= (MIN_LASTING if self.lasts else MIN_CHARACTERS)
        if self.language == ENGLISH or self.lasts:
            least = 1 if self.lasts or is_dated(self.text) else 2
            return len(self.core.split()) >= (2 if self.attribute else MIN_WORDS) and len(self.terms) >= least
        return len(self.text.split()) >= MIN_UNREAD and len(self.terms) >= MIN_WORDS

    @property
    def lasts(self) -> bool:
        """True if it says something about its speaker that will be true for a while."""
        return bool(self.kinds or self.attribute)

    @cached_property
    def attribute(self) -> str:
        """The attribute of the speaker that it states, such as `home`; usually blank."""
        found = statement_of(f"{self.speaker.name}: {self.core}")
        return found.attribute if found and found.subject == self.speaker.name else ""

    @cached_property
    def can_be_kept(self) -> bool:
        """True if it states something that is understood alone and that its speaker holds as true."""
        return self.is_statement and not needs_context(self.core, self.language) and not is_unreal(self.text)

    @cached_property
    def worth(self) -> float:
        """The weight of a new word in it: by its speaker, by how long it stays true, and by how specific it is."""
        durable = 1 + sum(DURABLE[kind] for kind in self.kinds[:2])
        own = 1.3 if self.is_of_speaker else 0.7 if self.speaker.is_named else 1.0
        particular = DATED if is_dated(self.text) else PARTICULAR if _PARTICULAR.search(self.text) else 1.0
        return durable * own * particular * self._role_weight

    @property
    def _role_weight(self) -> float:
        """The weight of the speaker: all people have the same weight, an assistant has less."""
        return 1.0 if self.speaker.is_named else ROLE_WEIGHT[self.turn.role]


@dataclass(frozen=True)
class Window:
    """A window of turns after reading.

    Args:
        turns: oldest first.
        speech: the speaker and the text of each.
        languages: the language of each.
        vocabulary: the content words of each.
        weights: the weights of words; rare words have high weights.
    """

    turns: Sequence[Turn]
    speech: list[tuple[Speaker, str]]
    languages: list[str]
    vocabulary: list[list[str]]
    weights: dict[str, float]

    @cached_property
    def called(self) -> frozenset[str]:
        """Names by which the speakers may call each other."""
        return nicknames(speaker.name for speaker, _text in self.speech if speaker.is_named)

    @cached_property
    def by_turn(self) -> list[list[Sentence]]:
        return [self._sentences_of(position) for position in range(len(self.turns))]

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for group in self.by_turn for sentence in group]

    def _sentences_of(self, position: int) -> list[Sentence]:
        turn, (speaker, text), language = self.turns[position], self.speech[position], self.languages[position]
        found = (quote for sentence in sentences(text) for quote in quotes_of(sentence))
        return [
            Sentence(turn, place, said, core, frozenset(content_words(core, language)), speaker, language)
            for place, said in enumerate(found)
            if (core := without_openers(said.replace("’", "'"), self.called) if language == ENGLISH else said)
        ]


def quotes_of(sentence: str) -> list[str]:
    """Return a sentence, split into parts if they state different attributes, because each of these can end separately.

    "My name is Nora, I live in Oslo" gives a name and a home. A part that shares its subject repeats it: "I live in
    Oslo", "I … work as a nurse".
    """
    parts, subject = [""], ""
    for piece in _PIECE.split(sentence):
        subject = found[0] if (found := _SUBJECT.search(piece)) else subject
        own = piece if found or not subject else f"{subject} … {_JOINT.sub('', piece)}"
        attribute = _attribute(own)
        if attribute and _attribute(parts[-1]) not in ("", attribute):
            parts.append(own)
        else:
            parts[-1] += piece
    return [_LOOSE_END.sub("", _JOINT.sub("", part)) for part in parts] if len(parts) > 1 else [sentence]


def _attribute(text: str) -> str:
    found = statement_of(text.strip())
    return found.attribute if found and found.subject == "User" else ""


def read(turns: Sequence[Turn]) -> Window:
    """Return the window of these turns."""
    speech = _by_speaker(turns)
    languages = [language_of(text[:VOCABULARY_CHARS]) for _, text in speech]
    vocabulary = [
        content_words(text[:VOCABULARY_CHARS], language) for (_, text), language in zip(speech, languages, strict=True)
    ]
    return Window(turns, speech, languages, vocabulary, _weights(vocabulary))


def _by_speaker(turns: Sequence[Turn]) -> list[tuple[Speaker, str]]:
    """Return the speaker and the text of each turn. If most turns start with a name, remove it from the text.

    A name from the application takes precedence.
    """
    matches = [None if turn.name or turn.role == "tool" else _SPEAKER.match(turn.content) for turn in turns]
    named = sum(map(bool, matches)) > len(turns) / 2
    return [
        (Speaker(match[1], is_named=True), turn.content[match.end() :])
        if match and named
        else (_of_role(turn), turn.content)
        for turn, match in zip(turns, matches, strict=True)
    ]


def _of_role(turn: Turn) -> Speaker:
    if turn.name:
        return Speaker(turn.name, is_named=True)
    return {"user": USER, "assistant": ASSISTANT}.get(turn.role) or Speaker(turn.tool_name or "Tool", is_named=False)


def _weights(vocabulary: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word over the turns of the window, smoothed."""
    count = len(vocabulary)
    frequency = Counter(word for turn in vocabulary for word in set(turn))
    return {
        word: (math.log((1 + count) / (1 + n)) + 1) * (1.5 if word[0].isdigit() else 1.0)
        for word, n in frequency.items()
    }


def telling(own: Sequence[Sentence], weights: dict[str, float], left: int) -> list[Sentence]:
    """Choose the sentences with the most new information for their length, up to `left` words, in order.

    The choice is greedy, with budgeted coverage as in Lin & Bilmes 2011 (https://aclanthology.org/P11-1052): the gain
    of a sentence is the weight of its words that no chosen one has. It never grows, so an earlier gain is an upper
    bound, and only the sentence with the highest gain is weighed again (Minoux 1978,
    https://doi.org/10.1007/BFb0006528).
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


def gain(sentence: Sentence, covered: Set[str], weights: dict[str, float]) -> float:
    """Return the new information in a sentence, relative to its length.

    The sum is exact before it is rounded: it must not depend on the order of a set, nor grow when words are removed.
    """
    new = math.fsum(weights.get(term, 0.0) for term in sentence.terms - covered)
    return new * sentence.worth / (len(sentence.text.split()) + MIN_WORDS)


def information(sentence: Sentence, weights: dict[str, float]) -> float:
    """Return the information in a sentence alone. It grows with length, but less than proportionally."""
    said = math.fsum(weights.get(term, 0.0) for term in sentence.terms)
    alone = 1.0 if sentence.can_be_kept else VAGUE
    return said * alone * sentence.worth / math.pow(len(sentence.text.split()) + MIN_WORDS, 0.75)


def dated(chosen: Iterable[Sentence]) -> str:
    """Return the verbatim sentences, one line per change of speaker, with the date each time it changes."""
    lines: list[str] = []
    date = ""
    for (day, _), said in groupby(chosen, key=lambda one: (f"[{one.turn.created_at:%Y-%m-%d}] ", one.speaker)):
        lines.append(("" if day == date else day) + in_turn(said))
        date = day
    return "\n".join(lines)[:6_000]


def in_turn(chosen: Iterable[Sentence]) -> str:
    """Return the verbatim sentences, with the speaker each time it changes."""
    said, speaker = [], None
    for one in chosen:
        said.append(one.quote.removeprefix(f"{one.speaker.name}: ") if one.speaker == speaker else one.quote)
        speaker = one.speaker
    return " ".join(said)


def fallback(turn: Turn) -> str:
    """Return the summary of a turn without sentences: its beginning."""
    return " ".join(turn.content[:200].split()) or "Turns without text."
