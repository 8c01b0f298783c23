"""Recognize sentences that need context, by a pattern of `tables/leaning.txt` or a pronoun without an antecedent."""

import re

from moments_app.engines.tables import any_pattern

_PRONOUN = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|it)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"(?i:\b(?:my|our|an?|the|two|three|some|his|her|their|\d+) [^\W\d_])|(?<=[a-z,] )[A-Z][a-z]"
    r"|[,;] | (?:and|but|because|when) "
    r"|^[A-Z][a-z]{2,} (?!a|the)"
)
_PART = re.compile(r"^[^\w\"“¿¡(]|[:(,;–—-]$")


def leans(text: str, language: str) -> bool:
    """Return whether a sentence can't be understood without the previous one.

    Args:
        text: a sentence without leading interjections.
        language: the language of its turn.
    """
    if any_pattern("leaning", language).search(text) or _PART.search(text) or text.count('"') % 2:
        return True
    if language != "en":
        return False
    pronoun = _PRONOUN.search(text)
    return pronoun is not None and not _NAMED.search(text[: pronoun.start()])
