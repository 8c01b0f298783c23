"""Feelings that people name as their own: not those that they deny, nor those that they wish somebody."""

import re
from collections import Counter
from collections.abc import Iterable

from moments_app.engines.tables import any_of

FEELINGS = (
    "joy excitement gratitude pride relief hope worry frustration anger sadness disappointment exhaustion surprise"
).split()
MOST = 4
_BEFORE = 4  # words that a denial may stand before the feeling
_PATTERNS = {name: re.compile(rf"\b(?:{any_of(name)})\b", re.IGNORECASE) for name in FEELINGS}
_DENIED = re.compile(rf"\b(?:{any_of('negations')})\b(?:\W+\w+){{0,{_BEFORE}}}\W*$", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Ww]e|[Uu]s)\b|^(?:so|feeling|really|super|very|just)\b", re.IGNORECASE)


def feelings(sentences: Iterable[str]) -> list[str]:
    """Return the feelings that somebody's sentences name, the most frequent first."""
    counts = Counter(name for sentence in sentences if _OWN.search(sentence) for name in _named(sentence))
    return [name for name, _count in counts.most_common(MOST)]


def _named(sentence: str) -> list[str]:
    found = ((name, pattern.search(sentence)) for name, pattern in _PATTERNS.items())
    return [name for name, match in found if match and not _is_denied(sentence, match.start())]


def _is_denied(sentence: str, start: int) -> bool:
    """Tell whether a denial stands shortly before a feeling, in the same part of the sentence."""
    clause = re.split(r"[,;:.!?–—]|\bbut\b", sentence[:start])[-1]
    # What can't be waited for, or believed, is not denied.
    return bool(_DENIED.search(clause))
