"""Key phrases of turns: recurring runs of words between stop words.

In scripts without spaces, a phrase is a run of two to four characters that occurs in several turns.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from moments_app.engines.extractive.language import ENGLISH, LETTERS, UNKNOWN, ignored_words, stem, words
from moments_app.engines.extractive.sentences import Sentence

LONGEST = 2  # maximum words of a phrase
SHORTEST = 3  # minimum letters of a word
WIDE_LENGTHS = (4, 3, 2)  # characters of a phrase in a script without spaces
PHRASE_MAX = 60  # characters
OFTEN = 0.8  # exponent of the number of sentences in the score of a phrase
SHARED = 1.5  # factor for a phrase that more than one speaker uses
_TOKEN = re.compile(rf"{LETTERS}(?:['’-]{LETTERS})*|\d[\w.,:/-]*|[^\w\s]")
_ASIDE = re.compile(r"\[[^\[\]]{1,300}\]")  # "[shares a photo of a street]" is not a topic
_WIDE_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_KATAKANA = re.compile(r"[\u30a0-\u30ff]{2,}")
# Characters that separate phrases in Chinese and Japanese, because they may occur in any sentence.
_WIDE_STOPS = re.compile(
    "[的了是我你您他她它们在有和就不也都这那吗呢吧啊呀嘛哦很会要去来到说想能可把被给让对从跟与或但而且因为所以如果还没好多少些个一两几"
    "什么怎样谁哪里上下着沿过得以为中后前起时候现在今天昨天明天年月日号点分钟\u3040-\u309f]+|[。！？，、；：]"
)

Phrase = tuple[str, ...]  # stems of its words


@lru_cache(maxsize=5_000)
def phrases_of(text: str, language: str) -> tuple[str, ...]:
    """Return the lower-case phrases of a sentence in order. An unknown language has none."""
    if wide := _WIDE_RUN.findall(text):
        return tuple(dict.fromkeys(part for run in wide for part in _wide_phrases(run)))
    if language == UNKNOWN:
        return ()
    return tuple(" ".join(run[-LONGEST:])[:PHRASE_MAX] for run in _runs(text, language))


def _wide_phrases(run: str) -> Iterator[str]:
    for part in filter(None, _WIDE_STOPS.split(run)):
        if _KATAKANA.fullmatch(part):
            yield part
            continue
        for length in WIDE_LENGTHS:
            yield from (part[start : start + length] for start in range(len(part) - length + 1))


def _runs(text: str, language: str) -> Iterator[list[str]]:
    """Yield the runs of words between stop words, numbers and marks."""
    ignored = ignored_words(language)
    run: list[str] = []
    before = ""
    for token in [*_TOKEN.findall(text), ""]:
        word = token.lower().replace("’", "'").removesuffix("'s")
        is_named = len(word) >= SHORTEST and word[0].isalpha() and word not in ignored
        # A word after a number is not a topic.
        if is_named and not word.endswith(("ly", "n't")) and not before.isdigit():
            run.append(word)
        elif run:
            yield run
            run = []
        before = token


def _stems(phrase: str) -> Phrase:
    return tuple(map(stem, phrase.split(" ")))


class Counted:
    """Counts the sentences with each phrase or part of a phrase.

    Args:
        without: Stems that phrases must not contain, for example the names of the speakers.
    """

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self._without = without
        self._sentences: dict[Phrase, list[Sentence]] = defaultdict(list)
        self._said: dict[Phrase, str] = {}

    def add(self, sentence: Sentence) -> None:
        own: dict[Phrase, str] = {}
        for phrase in phrases_of(_ASIDE.sub(". ", sentence.core), sentence.language):
            said = phrase.split(" ")
            for start in range(len(said)):
                for end in range(start + 1, len(said) + 1):
                    part = " ".join(said[start:end])
                    if self._without.isdisjoint(_stems(part)):
                        own.setdefault(_stems(part), part)
        for stems, text in own.items():
            self._said.setdefault(stems, text)
            self._sentences[stems].append(sentence)

    def best(self, weights: Mapping[str, float], count: int, least: int = 1) -> list[str]:
        """Return the best phrases that occur in at least `least` turns. No two share a word or a run of characters."""
        ranked = sorted(self._sentences, key=lambda stems: (-self._worth(stems, weights), stems))
        chosen: list[Phrase] = []
        for stems in ranked:
            if len(chosen) == count:
                break
            turns = {one.turn.index for one in self._sentences[stems]}
            if len(turns) >= least and not any(_overlap(stems, other) for other in chosen):
                chosen.append(stems)
        return [self._said[stems] for stems in chosen]

    def _worth(self, stems: Phrase, weights: Mapping[str, float]) -> float:
        """Return the score of a phrase. It increases with frequency, rarity, length, and the number of speakers."""
        is_wide = bool(_WIDE_RUN.match(stems[0]))
        rarity = math.sqrt(len(stems[0])) if is_wide else sum(weights.get(stem, 1.0) for stem in stems)
        speakers = {one.speaker.name for one in self._sentences[stems]}
        return math.pow(len(self._sentences[stems]), OFTEN) * rarity * (SHARED if len(speakers) > 1 else 1.0)


def _overlap(one: Phrase, other: Phrase) -> bool:
    if _WIDE_RUN.match(one[0]) and _WIDE_RUN.match(other[0]):
        return any(one[0][start : start + 2] in other[0] for start in range(len(one[0]) - 1))
    return not set(one).isdisjoint(other)


def counted(sentences: Iterable[Sentence], names: Iterable[str]) -> Counted:
    """Count the phrases of statements and questions, without names of people."""
    said = [one for one in sentences if one.turn.role != "tool" and _is_about_something(one)]
    # Small talk is not recognized in other languages.
    said = [one for one in said if one.kinds or one.language == ENGLISH] or said
    found = Counted(frozenset(stem(word) for name in names for word in words(name)))
    for one in said:
        found.add(one)
    return found


def _is_about_something(sentence: Sentence) -> bool:
    """Return whether a sentence is a statement, or a question in a language whose small talk is recognized."""
    return sentence.is_statement or (sentence.is_question and sentence.language == ENGLISH)
