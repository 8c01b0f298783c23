"""The sentences of a window of turns: how they are told, what they are chosen by, and how those are written down."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from moments_app.engines.extractive.kinds import DURABLE, is_of_everybody, is_of_oneself, kinds_of
from moments_app.engines.extractive.language import (
    ENGLISH,
    content_words,
    ignored_words,
    is_wide,
    language_of,
    sentences,
    words,
)
from moments_app.engines.extractive.speech import (
    clauses,
    is_reaction,
    nicknames,
    without_asides,
    without_idle_parts,
    without_openers,
)
from moments_app.engines.extractive.tables import first_person, lasting, word_set
from moments_app.engines.extractive.times import dated as with_dates
from moments_app.engines.extractive.times import is_dated
from moments_app.engines.extractive.verbs import is_base, is_form, is_gerund
from moments_app.engines.extractive.voice import Speaker, told
from moments_app.engines.extractive.whole import completed, is_whole
from moments_app.engines.transcript import Turn

ROLE_WEIGHT = {"user": 1.0, "assistant": 0.75, "tool": 0.3}
VOCABULARY_CHARS = 20_000  # of a turn whose words are counted
SAID = 0.9  # of the words of what is said by a text already
DATED, PARTICULAR = 1.7, 1.3  # how much more something is worth with a time, and with a number or a name
VAGUE = 0.4  # what a sentence is worth by itself that can't be understood so
PARTIAL = 0.5  # the same of one that is no whole statement, or states nothing
LEAST_WORDS = 3  # of a sentence that says something
LEAST_UNREAD = 6  # of one in another language
LEAST_CHARACTERS = 12  # of one in a script without spaces
LEAST_LASTING = 5  # characters of one in such a script that says what stays true of its speaker
LASTING = 0.8  # how much more such a sentence is worth in a language whose kinds of statements aren't known
LEAST_LETTERS = 0.6  # share of a sentence's characters that are letters or spaces: less is code or a table

USER, ASSISTANT = Speaker("User", False), Speaker("Assistant", False)
# "Maria: Hey John!" as a transcript of two people has it.
_SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{1,30}(?: [^\W\d_][\w'’.-]{1,30})?):\s+(?=\S)")
_QUESTION = re.compile(r"[?？؟][\"'”’)\]]*$")
_END = re.compile(r"\s*[!.…,;:–—-]+$")
# What stands for something said before, as the subject or as the object of a first verb.
_VAGUE = re.compile(
    r"^(?:it|they|he|she|this|that|these|those|there|which|here|the same|one of)\b(?! (?:is|are|was|were) (?:my|our)\b)"
    r"|^(?:[\w']+ ){1,3}(?:it|them)\b|^(?:[\w']+ ){1,4}(?:it|them|this|that|those|these|something|stuff|one)"
    r"(?:[,.!]|$| (?:out|all|so|too|and|next|more|like)\b)"
    r"|(?<!over )\b(?:here|there)\b(?!'s| (?:is|are|was|were|will|for)\b)"
    r"|\blike (?:this|that)\b|\b(?:love|like|enjoy|hate)(?:s|d|ed)? (?:that|how|it|this|them|what|when)\b",
    re.IGNORECASE,
)
_TO_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
_NAMED_FIRST = re.compile(r"\w+(?: \d+)? (?:is|isn't|are|was|wasn't|were|has)\b")  # "Work is …" asks for nothing
_PARTICULAR = re.compile(r"\d|(?<=[a-z,] )[A-Z][a-z]")  # a number or a name


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the words by which it is chosen.

    Args:
        turn: where it stands.
        place: in that turn.
        text: without asides, greetings, and the names of who is spoken to.
        terms: its content words.
        speaker: who says it.
        listener: who is spoken to, when that is one person with a name.
        language: of the window.
        kinds: what it tells of its speaker.
        is_reaction: it only answers to what the other said.
    """

    turn: Turn
    place: int
    text: str
    terms: frozenset[str]
    speaker: Speaker
    listener: Speaker | None
    language: str
    kinds: tuple[str, ...]
    is_reaction: bool

    @cached_property
    def told(self) -> str:
        """The sentence as it is remembered: in the third person and with dates; in other languages as it was said."""
        if self.language != ENGLISH:
            return f"{self.speaker.name}: {self.text}"
        text = with_dates(self.text, self.turn.created_at.date())
        if self.turn.role == "tool":
            return text
        if verb := self._quoted_as:
            return f"{self.speaker.name} {verb}: {text}"
        said = told(text, self.speaker, self.listener)
        return said if said.endswith("?") else f"{_END.sub('', said)}."

    @property
    def is_quoted(self) -> bool:
        """True if it can only be quoted, which says nothing of the speaker; see `_quoted_as`."""
        return self.language == ENGLISH and bool(self._quoted_as)

    @property
    def _quoted_as(self) -> str:
        """How it is said where it can only be quoted: a question, what to do, advice, of everybody. Else blank."""
        if self.is_question or (self._is_order and self.turn.role == "user"):
            return "asked"
        is_advice = self.turn.role == "assistant" and not self.speaker.is_named and bool(_TO_YOU.search(self.text))
        return "said" if self._is_order or is_advice or is_of_everybody(self.text) else ""

    @property
    def _is_order(self) -> bool:
        """True if it begins with what to do."""
        first = self.text.split(maxsplit=1)[0].lower().strip(",") if self.text else ""
        return first == "don't" or (is_base(first) and not _NAMED_FIRST.match(self.text))

    @property
    def is_question(self) -> bool:
        return bool(_QUESTION.search(self.text))

    @cached_property
    def is_statement(self) -> bool:
        """True if it says something by itself, in a language that is known."""
        if self.is_question or self._is_idle or not self._is_long_enough:
            return False
        if self.text.count('"') % 2:  # a part of what is quoted
            return False
        letters = sum(character.isalpha() or character.isspace() for character in self.text)
        return letters >= LEAST_LETTERS * len(self.text)

    @property
    def _is_long_enough(self) -> bool:
        """True if it has words enough; more where small talk can't be told by its words."""
        if self.language == ENGLISH:
            is_enough = len(self.text.split()) >= LEAST_WORDS and len(self.terms) >= (1 if self.kinds else 2)
            return is_enough and _is_english(self.text)
        if is_wide(self.text):
            return len(self.text) >= (LEAST_LASTING if self._is_lasting else LEAST_CHARACTERS)
        if self._is_lasting:
            return len(self.text.split()) >= LEAST_WORDS
        return len(self.text.split()) >= LEAST_UNREAD and len(self.terms) >= LEAST_WORDS

    @property
    def is_of_speaker(self) -> bool:
        """True if it is about who says it."""
        if self.language == ENGLISH:
            return is_of_oneself(self.text)
        return not first_person(self.language).isdisjoint(words(self.text))

    @cached_property
    def _is_lasting(self) -> bool:
        """True if it says what stays true of its speaker, in another language than English, by a word that tells it."""
        if self.language == ENGLISH or not self.is_of_speaker:
            return False
        if is_wide(self.text):
            return any(word in self.text for word in lasting(self.language))
        return any(word.startswith(lasting(self.language)) for word in words(self.text))

    @property
    def is_vague(self) -> bool:
        """True if it can't be understood without what was said before."""
        return self.language == ENGLISH and bool(_VAGUE.search(self.text))

    @cached_property
    def is_whole(self) -> bool:
        """True if it is a whole statement; in languages that aren't known, always."""
        return self.language != ENGLISH or is_whole(self.text)

    @property
    def can_be_kept(self) -> bool:
        """True if it says something that is understood without what stands around it."""
        return self.is_statement and not self.is_vague and self.is_whole

    @property
    def by_itself(self) -> float:
        """How much of its worth it has where nothing stands around it."""
        return (VAGUE if self.is_vague else 1.0) * (1.0 if self.is_whole and not self.is_quoted else PARTIAL)

    @property
    def _is_idle(self) -> bool:
        """True if it passes the time, as what people tell each other to do; what an assistant is asked for doesn't."""
        return self.is_reaction or (self._is_order and self.language == ENGLISH and self.speaker.is_named)

    @cached_property
    def worth(self) -> float:
        """What a new word in it counts: by who says it, how long that will be true, and how much stands by itself."""
        if self.is_question or self._is_idle:
            return 0.1 * self._role_weight
        durable = 1 + (LASTING if self._is_lasting else sum(DURABLE[kind] for kind in self.kinds[:2]))
        own = 1.3 if self.is_of_speaker else 0.7 if self.speaker.is_named else 1.0
        particular = DATED if is_dated(self.text) else PARTICULAR if _PARTICULAR.search(self.text) else 1.0
        return durable * own * particular * self._role_weight

    @property
    def _role_weight(self) -> float:
        """How much the speaker counts: people alike, more than an assistant."""
        return 1.0 if self.speaker.is_named else ROLE_WEIGHT[self.turn.role]


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
    speech: list[tuple[Speaker, str]]
    vocabulary: list[list[str]]
    weights: dict[str, float]

    @cached_property
    def named(self) -> tuple[Speaker, ...]:
        """Those who speak under a name, the first first."""
        return tuple(dict.fromkeys(speaker for speaker, _text in self.speech if speaker.is_named))

    @cached_property
    def called(self) -> frozenset[str]:
        """Names by which the speakers may call each other."""
        return nicknames(speaker.name for speaker in self.named)

    @cached_property
    def by_turn(self) -> list[list[Sentence]]:
        """The sentences of each turn."""
        return [self._sentences_of(position) for position in range(len(self.turns))]

    @property
    def sentences(self) -> list[Sentence]:
        """All sentences."""
        return [sentence for group in self.by_turn for sentence in group]

    def _sentences_of(self, position: int) -> list[Sentence]:
        speaker, text = self.speech[position]
        turn = self.turns[position]
        listener = self._listener(speaker)
        found = sentences(text if turn.role == "tool" else without_asides(text))
        read = (self._read_once(clause) for sentence in found for clause in self._clauses(sentence))
        return [
            Sentence(turn, place, said, terms, speaker, listener, self.language, kinds, is_reaction)
            for place, (said, terms, kinds, is_reaction) in enumerate(read)
            if said
        ]

    def _listener(self, speaker: Speaker) -> Speaker | None:
        others = [other for other in self.named if other != speaker]
        return others[0] if len(self.named) == 2 and len(others) == 1 else None

    def _clauses(self, sentence: str) -> list[str]:
        """Return the clauses of a sentence that are statements by themselves."""
        return clauses(sentence) if self.language == ENGLISH else [sentence]

    def _read_once(self, sentence: str) -> tuple[str, frozenset[str], tuple[str, ...], bool]:
        """Return what is known of a sentence, which is read and kept once however often it is said."""
        if sentence not in self._known:
            self._known[sentence] = self._read(sentence)
        return self._known[sentence]

    def _read(self, sentence: str) -> tuple[str, frozenset[str], tuple[str, ...], bool]:
        is_english = self.language == ENGLISH
        text = completed(without_idle_parts(without_openers(sentence, self.called))) if is_english else sentence
        terms = frozenset(content_words(text, self.language))
        return text, terms, kinds_of(text) if is_english else (), is_english and is_reaction(text)

    @cached_property
    def _known(self) -> dict[str, tuple[str, frozenset[str], tuple[str, ...], bool]]:
        return {}


def read(turns: Sequence[Turn]) -> Window:
    """Return the window of these turns."""
    language = language_of([turn.content for turn in turns])
    speech = _by_speaker(turns)
    vocabulary = [content_words(text[:VOCABULARY_CHARS], language) for _, text in speech]
    return Window(turns, language, speech, vocabulary, _weights(vocabulary))


def _by_speaker(turns: Sequence[Turn]) -> list[tuple[Speaker, str]]:
    """Return who speaks in each turn, and its text, without the name in front if most turns have one.

    A name that the application gives goes before any other.
    """
    matches = [None if turn.name or turn.role == "tool" else _SPEAKER.match(turn.content) for turn in turns]
    named = sum(map(bool, matches)) > len(turns) / 2
    return [
        (Speaker(match[1], True), turn.content[match.end() :]) if match and named else (_of_role(turn), turn.content)
        for turn, match in zip(turns, matches, strict=True)
    ]


def _of_role(turn: Turn) -> Speaker:
    if turn.name:
        return Speaker(turn.name, True)
    return {"user": USER, "assistant": ASSISTANT}.get(turn.role) or Speaker(turn.tool_name or "Tool", False)


def _weights(vocabulary: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word over the turns of the window, smoothed."""
    count = len(vocabulary)
    frequency = Counter(word for turn in vocabulary for word in set(turn))
    return {word: (math.log((1 + count) / (1 + n)) + 1) * _said_by(word) for word, n in frequency.items()}


def _said_by(word: str) -> float:
    """Return how much a word says: what judges names nothing, and numbers answer more questions than verbs."""
    if word in word_set("adjectives", "empty nouns", "abstract nouns"):
        return 0.3
    if is_form(word) or is_gerund(word):
        return 0.6
    return 1.5 if word[0].isdigit() else 1.0


def _is_english(text: str) -> bool:
    """Tell whether a sentence in an English window has a word of English that is no single letter."""
    return any(len(word) > 1 and (word in ignored_words(ENGLISH) or is_form(word)) for word in words(text))


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


def gain(sentence: Sentence, covered: Set[str], weights: dict[str, float]) -> float:
    """Return what a sentence says that is new, for its length.

    The sum is exact before it is rounded: it must not depend on the order of a set, nor grow when words are taken away.
    """
    new = math.fsum(weights.get(term, 0.0) for term in sentence.terms - covered)
    return new * sentence.worth / (len(sentence.text.split()) + LEAST_WORDS)


def information(sentence: Sentence, weights: dict[str, float]) -> float:
    """Return what a sentence says by itself, whatever else is said: long ones say more, but not by the word."""
    said = math.fsum(weights.get(term, 0.0) for term in sentence.terms)
    return said * sentence.by_itself * sentence.worth / math.pow(len(sentence.text.split()) + LEAST_WORDS, 0.75)


def says(said: Set[str], own: Set[str], enough: float = SAID) -> bool:
    """Tell whether the words of a text have nearly all of another's own."""
    return bool(own) and len(own & said) >= enough * len(own)


def dated(chosen: Iterable[Sentence]) -> str:
    """Return the sentences as they are told, a line for each speaker in turn, the date where it changes."""
    lines: list[str] = []
    date = ""
    speaker: Speaker | None = None
    for sentence in chosen:
        day = f"[{sentence.turn.created_at:%Y-%m-%d}]"
        if day != date:
            lines.append(f"{day} {sentence.told}")
        elif sentence.speaker != speaker:
            lines.append(sentence.told)
        else:
            lines[-1] += f" {_again(sentence)}"
        date, speaker = day, sentence.speaker
    return "\n".join(lines)[:6_000]


def _again(sentence: Sentence) -> str:
    """Return a sentence after another of the same speaker."""
    return sentence.text if sentence.language != ENGLISH else sentence.told


def fallback(turn: Turn) -> str:
    """Return a summary of a turn without a sentence: its beginning."""
    return " ".join(turn.content[:200].split()) or "Turns without text."
