"""Words, sentences, keyphrases and feelings of a text, with no model and nothing to download."""

import logging
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pysbd
import yake
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "sv", "da", "no", "pt", "pl", "fi")
SENTENCE_TEXT_MAX = 4_000  # characters of one text that are split into sentences; splitting is slow
KEYPHRASE_TEXT_MAX = 8_000
LIST_MAX = 30  # marks of a list in one line, such as "a)" and "1."
LINE_MAX = 1_000  # characters that are split into sentences at once
SENTENCE_MAX = 400  # characters; a longer "sentence" is a list, code or no prose at all

# A word, a number with its punctuation, or one character of a script that puts no spaces between words.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_]+(?:['’][^\W\d_]+)*|\d+(?:[.,:/-]\d+)*")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_SENTENCE_END = re.compile(r"(?<=[.!?]\s)|(?<=[.!?][\"')\]]\s)")
_LIST_MARK = re.compile(r"(?:^|[\s(])(?:[a-z]|[ivx]{2,5}|\d{1,2})[.)]")
_WIDE_SENTENCE = re.compile(r"[^。！？\n]+[。！？]?")
_STOPWORDS = Path(yake.__file__).parent / "core" / "StopwordsList"
logging.getLogger("yake").setLevel(logging.CRITICAL)  # of a text that it fails on, it would log the beginning

# Feelings that are named. Stems, so that "frustrated" and "frustrating" both count.
_FEELINGS = {
    "joy": ("happy", "glad", "joy", "delight", "wonderful", "thrilled", "love it"),
    "excitement": ("excited", "exciting", "can't wait", "looking forward"),
    "gratitude": ("thank", "grateful", "appreciate"),
    "pride": ("proud",),
    "relief": ("relief", "relieved", "phew"),
    "hope": ("hope", "hopeful"),
    "worry": ("worr", "anxious", "nervous", "afraid", "scared", "stress"),
    "frustration": ("frustrat", "annoy", "fed up", "irritat"),
    "anger": ("angry", "furious", "mad at"),
    "sadness": ("sad", "cry", "cried", "miss him", "miss her", "heartbroken", "grief", "passed away", "lonely"),
    "disappointment": ("disappoint", "let down"),
    "exhaustion": ("exhausted", "tired", "worn out", "overwhelm"),
    "surprise": ("surprise", "unexpected", "can't believe"),
}
_FEELING_PATTERNS = {
    name: re.compile(r"\b(?:" + "|".join(re.escape(stem) for stem in stems) + ")", re.IGNORECASE)
    for name, stems in _FEELINGS.items()
}
STRONG_SENTIMENT = 0.6  # of VADER's compound score, -1 to 1


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, numbers among them."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


@cache
def stopwords(language: str) -> frozenset[str]:
    """Return words that carry no content, and what is left of English contractions."""
    listed = (_STOPWORDS / f"stopwords_{language}.txt").read_text(encoding="utf-8").split()
    return frozenset(listed) | (_CHAT_WORDS if language == "en" else frozenset())


_CHAT_WORDS = frozenset(
    (
        "i'm i've i'd i'll it's that's what's there's he's she's they're we're you're you've don't didn't "
        "doesn't can't couldn't won't wouldn't isn't aren't wasn't haven't hasn't let's yeah yes no ok okay "
        "hey hi hello wow oh thanks thank really pretty great good nice cool awesome sounds glad sure lot "
        "thing things stuff bit just like also got get going go gonna know think see make made one time day "
        "today yesterday tomorrow well much many even still kinda cheers feel feeling feels felt hope hear "
        "heard fun amazing hi-there please maybe actually definitely lots way always never little big new "
        "lately soon back keep kind look looks looking take took want wanted need needs say said tell told "
        "wonderful super absolutely totally exactly mean course bye week month year last next"
    ).split()
)


def language_of(texts: Iterable[str]) -> str:
    """Return the language of the stop words that the texts use most; English when none stands out."""
    counts = Counter(word for text in texts for word in words(text[:1_000]))
    scores = {code: sum(counts[word] for word in stopwords(code)) for code in LANGUAGES}
    # On a tie the first counts: the list begins with English.
    return max(LANGUAGES, key=lambda code: scores[code])


def content_words(text: str, language: str) -> list[str]:
    """Return the words that say what a text is about, plurals cut."""
    ignored = stopwords(language)
    return [_stem(word) for word in words(text) if word not in ignored and (len(word) > 1 or _WIDE.match(word))]


def _stem(word: str) -> str:
    """Cut the commonest endings, so that "glazes" and "glaze", "kiln's" and "kiln" are one word."""
    word = word.removesuffix("'s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _pieces(line: str) -> Iterator[str]:
    """Divide a line where sentences may end: to split it takes a time that grows with the square of its length.

    What still is too long is a list, code or no prose at all, and is left out.
    """
    pieces = [""]
    for part in _SENTENCE_END.split(line):
        if len(pieces[-1]) + len(part) > LINE_MAX:
            pieces.append("")
        pieces[-1] += part
    return (piece for piece in pieces if len(piece) <= LINE_MAX)


def _split(line: str, language: str) -> Iterator[str]:
    """Return the sentences that pysbd finds, but for those that it left a mark of its own in.

    Of a long list it is not asked: for each item it goes through the line, and makes it longer.
    """
    if len(_LIST_MARK.findall(line)) > LIST_MAX:
        yield from _SENTENCE_END.split(line)
        return
    start = 0
    for part in _segmenter(language).processor(line).process() if line.strip() else ():
        if (found := line.find(part, start)) >= 0:
            start = found + len(part)
            yield part


@cache
def _segmenter(language: str) -> pysbd.Segmenter:
    known = language if language in ("en", "de", "fr", "es", "it", "nl", "da", "pl") else "en"
    return pysbd.Segmenter(language=known, clean=False)


def sentences(text: str, language: str) -> list[str]:
    """Return the sentences of a text, or of the beginning of a very long one."""
    text = text[:SENTENCE_TEXT_MAX]
    if _WIDE.search(text):
        found: Sequence[str] = _WIDE_SENTENCE.findall(text)
    else:
        found = [part for line in text.splitlines() for piece in _pieces(line) for part in _split(piece, language)]
    return [sentence for part in found if (sentence := " ".join(part.split())) and len(sentence) <= SENTENCE_MAX]


def keyphrases(text: str, language: str, count: int, without: Container[str] = ()) -> list[str]:
    """Return the strongest phrases of one or two words, in lower case, none of them part of another.

    Args:
        text: of which the beginning is read.
        language: its code, as `language_of` gives it.
        count: most phrases returned.
        without: words, in lower case, that no phrase may have, such as the names of the speakers.

    By YAKE (Campos et al. 2020, https://doi.org/10.1016/j.ins.2019.09.013), which needs no training.
    """
    extractor = yake.KeywordExtractor(lan=language, n=2, dedupLim=0.7, top=4 * count)
    ignored = stopwords(language)
    kept: list[str] = []
    for phrase, _score in extractor.extract_keywords(text[:KEYPHRASE_TEXT_MAX]):
        parts = [_stem(word) for word in words(phrase)]
        telling = bool(parts) and not any(part in ignored or part in without or part.isdigit() for part in parts)
        if telling and not any(set(parts) & {_stem(word) for word in words(other)} for other in kept):
            kept.append(" ".join(words(phrase))[:60])
    return kept[:count]


@cache
def _sentiment() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()


def feelings(texts: Iterable[str]) -> list[str]:
    """Return the feelings named in the texts, the most frequent first; else a strong sentiment without a name."""
    said = Counter(texts)  # what is said again is read once, and counts again
    counts = Counter[str]()
    for name, pattern in _FEELING_PATTERNS.items():
        counts[name] = sum(times for text, times in said.items() if pattern.search(text))
    named = [name for name, count in counts.most_common(4) if count]
    if named or not said:
        return named
    score = sum(_sentiment().polarity_scores(text[:500])["compound"] * times for text, times in said.items())
    mean = score / said.total()
    return ["joy" if mean > 0 else "distress"] if abs(mean) >= STRONG_SENTIMENT else []
