"""Phrases that name a subject: runs of nouns, found without a model by what can't be part of one.

A run ends at a function word, an adverb, a mark or a verb. A word that is a verb or a noun ("walk", "paint") is a noun
unless a pronoun, a modal verb or "to" stands before it, or what it acts on behind it ("Henrik uses an epoxy"); a gerund
is one after an article, or where it names what people do ("painting"). What only judges ("cute") is left out, and so is
a single word behind "is" or "so", which judges ("so optimistic"). In languages without tables a phrase is one word.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from moments_app.engines.extractive import verbs
from moments_app.engines.extractive.language import ENGLISH, content_words, ignored_words, stem, words
from moments_app.engines.extractive.tables import word_set

LONGEST = 3  # words
GERMAN = "de"
SHORTEST = 5  # letters of a German word that is a phrase
PHRASE_MAX = 60  # characters
OFTEN = 0.8  # how a phrase's worth grows with the texts that have it: less than they do
NAMED = 2  # phrases that name a moment
SHARED = 1.5  # how much more it is worth where more than one speaks of it
_TOKEN = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*|\d[\w.,:/-]*|[^\w\s]")
_ENDS = tuple(".!?…")
_ARTICLES = frozenset("a an the my our your his her its their".split())
_DETERMINERS = _ARTICLES | frozenset("this that these those some any no another each every".split())
_OF_SEVERAL = frozenset("all both many few several most".split())  # before a noun, or a verb without "s"
_OBJECTS = _DETERMINERS | frozenset("me you him us them it myself yourself themselves".split())
# What a word that judges stands behind, and no noun in the singular without an article.
_LINKS = frozenset(
    "is isn't are aren't am was wasn't were weren't be been being i'm you're we're they're he's she's it's that's feel "
    "feels felt feeling look looks looked sound sounds sounded seem seems seemed get gets got getting become became "
    "stay stayed keep kept so very too quite as such how".split()
)
_VERB_AFTER = (
    frozenset("i we you they he she it to who not don't didn't doesn't can't won't never let's".split()) | verbs.MODALS
)


@dataclass(frozen=True)
class Subject:
    """A phrase as it was said first, in lower case, and the words that it is counted by.

    Args:
        text: of it.
        stems: of its words.
        is_name: it has a capital letter inside a sentence.
        is_counted: a number stands before it.
    """

    text: str
    stems: tuple[str, ...]
    is_name: bool = False
    is_counted: bool = False


@lru_cache(maxsize=5_000)
def subjects(sentence: str, language: str) -> tuple[Subject, ...]:
    """Return the phrases of a sentence, in order."""
    if language == ENGLISH:
        return tuple(_subject(run, before) for run, before in _runs(sentence) if run and not _judges(run, before))
    if language != GERMAN:
        return ()
    ignored = ignored_words(language)
    _first, *others = _TOKEN.findall(sentence) or [""]
    return tuple(_subject([word]) for word in others if _is_noun(word) and word.lower() not in ignored)


def _is_noun(word: str) -> bool:
    """Tell whether a word inside a German sentence is a noun: it has a capital letter."""
    return len(word) >= SHORTEST and word.isalpha() and word[0].isupper()


def _subject(run: Sequence[str], before: str = "") -> Subject:
    """Return a run as a subject, after the word before it."""
    kept = [word.removesuffix("'s").lower() for word in run[-LONGEST:]]
    is_name = bool(before) and before not in _ENDS and run[-1].istitle()
    is_counted = before[:1].isdigit() or before in word_set("numbers")
    return Subject(" ".join(kept)[:PHRASE_MAX], tuple(stem(word) for word in kept), is_name, is_counted)


def _judges(run: Sequence[str], before: str) -> bool:
    """Tell whether a run is a word that only judges, such as "the response was heartwarming"."""
    is_plural = run[-1].endswith("s") and not run[-1].endswith(("ss", "ous"))
    return len(run) == 1 and before in _LINKS and run[0].islower() and not is_plural


def _runs(sentence: str) -> Iterator[tuple[list[str], str]]:
    """Yield runs of nouns, with what describes them, each with the word before it."""
    run: list[str] = []
    before = first = ""
    for token, after in pairwise([*_TOKEN.findall(sentence.replace("’", "'")), ""]):
        low = token.lower()
        if _belongs(low, token, before, run) and not _acts(low, after.lower(), begins=not run):
            first = first if run else before
            run.append(token)
        else:
            yield _trimmed(run), first
            run = []
        before = low
    yield _trimmed(run), first


def _belongs(low: str, token: str, before: str, run: Sequence[str]) -> bool:
    """Tell whether a word may be part of a phrase, after the word before it."""
    low = low.removesuffix("'s")
    if not low[:1].isalpha() or low in _never() or low.endswith("ly") or "'" in low:
        return False
    if low in word_set("adjectives", "numbers"):
        return False
    if token[0].isupper() and before and before not in _ENDS:
        return True  # a name
    if low in word_set("activities"):
        return True
    if verbs.is_gerund(low):
        return before in _DETERMINERS or bool(run)
    if verbs.is_third(low) and before in _OF_SEVERAL:
        return True
    if verbs.is_base(low) or verbs.is_third(low):
        return before not in _VERB_AFTER and (before in _DETERMINERS or before in word_set("adjectives") or bool(run))
    return not (verbs.is_past(low) or verbs.is_participle(low))


def _acts(low: str, after: str, *, begins: bool) -> bool:
    """Tell whether a word is a verb: what it acts on stands behind it, or how; at the beginning, a gerund alone."""
    if begins:
        return verbs.is_gerund(low) and after in _ARTICLES
    if not (verbs.is_gerund(low) or verbs.is_third(low) or verbs.is_base(low)):
        return False
    is_acted_on = after in _OBJECTS or after[:1].isdigit() or verbs.is_gerund(after)
    return is_acted_on or after in word_set("adjectives", "numbers")


@lru_cache(maxsize=1)
def _never() -> frozenset[str]:
    only = word_set("only verbs")
    verbal = only | {verbs.third(verb) for verb in only}
    return verbal | word_set("function words", "adverbs", "chat words", "interjections") | ignored_words(ENGLISH)


def _trimmed(run: Sequence[str]) -> list[str]:
    """Return a run without empty nouns at its ends, or nothing."""
    kept = list(run)
    empty = word_set("empty nouns", "abstract nouns")
    while kept and kept[-1].lower().removesuffix("'s") in empty:
        kept.pop()
    while kept and kept[0].lower() in word_set("quantities"):
        kept.pop(0)
    return kept if kept and len(kept[-1]) > 2 else []


class Counted:
    """Phrases counted over texts, each once a text.

    Args:
        without: stems that no phrase may have, such as the names of the speakers.
    """

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self._without = without
        self._texts = Counter[tuple[str, ...]]()
        self._speakers: dict[tuple[str, ...], set[str]] = defaultdict(set)
        self._said: dict[tuple[str, ...], str] = {}

    def add(self, found: Iterable[Subject], speaker: str) -> None:
        """Count what one text of somebody names, and the last words of each phrase by themselves."""
        own: dict[tuple[str, ...], str] = {}
        for subject in found:
            if not self._without.intersection(subject.stems):
                said = subject.text.split()
                for start in range(len(said)):
                    own.setdefault(subject.stems[start:], " ".join(said[start:]))
        self._texts.update(own.keys())
        for stems, text in own.items():
            self._said.setdefault(stems, text)
            self._speakers[stems].add(speaker)

    def best(self, weights: dict[str, float], count: int, least: int = 1) -> list[str]:
        """Return the phrases that say most, none with a word of another.

        Args:
            weights: of stems, by how rare they are.
            count: most phrases.
            least: texts that a phrase is in.
        """
        ranked = sorted(self._texts, key=lambda stems: (-self._worth(stems, weights), stems))
        chosen: list[tuple[str, ...]] = []
        used: set[str] = set()
        for stems in ranked:
            if len(chosen) == count:
                break
            if self._texts[stems] >= least and not used.intersection(stems):
                chosen.append(stems)
                used.update(stems)
        return [self._said[stems] for stems in chosen]

    def named_in(self, found: Sequence[Subject], weights: dict[str, float]) -> list[str]:
        """Return the two phrases of a sentence that say most, as they follow each other; fewer where it names fewer."""
        own = [one for one in dict.fromkeys(found) if one.stems in self._texts]
        ranked = sorted(own, key=lambda one: -self._worth(one.stems, weights))
        return [one.text for one in own if one in ranked[:NAMED]]

    def worth_of(self, found: Sequence[Subject], weights: dict[str, float]) -> float:
        """Return what the phrases of a sentence that say most are worth."""
        return sum(sorted(self._worth(one.stems, weights) for one in set(found) if one.stems in self._texts)[-NAMED:])

    def _worth(self, stems: tuple[str, ...], weights: dict[str, float]) -> float:
        """Return what a phrase says: how often, how rare its words; more for each word, and where several say it."""
        rarity = sum(weights.get(stem, 1.0) for stem in stems)
        return math.pow(self._texts[stems], OFTEN) * rarity * (SHARED if len(self._speakers[stems]) > 1 else 1.0)


def stems_of(names: Iterable[str], language: str) -> frozenset[str]:
    """Return the stems of names, that phrases are to go without."""
    return frozenset(stem(word) for name in names for word in (*words(name), *content_words(name, language)))
