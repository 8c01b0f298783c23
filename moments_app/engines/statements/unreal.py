"""Recognize sentences that aren't held as true: dreams, wishes, suppositions, questions, and quotes of other people.

What people deny of their home or work is no fact either, but for what is over. A sentence in which none of the patterns
of `tables/unreal.txt` stands is taken at its word.
"""

import re
from functools import lru_cache

from moments_app.engines.tables import any_pattern

_QUESTION = re.compile(r"[?？؟]+[\"'”’)\]»]*\s*$")
_QUOTED = re.compile(
    r"[\"“„«「][^\"”“»」]*\b(?:I|I'm|my|ich|mein\w*|yo|mi|je|mon|я|мой)\b[^\"”“»」]*[\"”“»」]|[“「][^”」]*我"
)


def is_question(text: str) -> bool:
    """Tell whether a sentence asks something."""
    return bool(_QUESTION.search(text))


@lru_cache(maxsize=2_000)  # the same sentence is asked about several times
def is_unreal(text: str) -> bool:
    """Tell whether a sentence says something that its speaker doesn't hold as true of the world."""
    said = text.replace("’", "'")
    return is_question(said) or bool(any_pattern("unreal").search(said)) or bool(_QUOTED.search(said))
