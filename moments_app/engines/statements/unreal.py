"""Recognize sentences that aren't held as true: dreams, wishes, suppositions, questions, and quotes of other people.

A denial about home or work is no fact either, unless it says that something ended. A sentence that matches no pattern
of `tables/unreal.txt` is taken literally.
"""

import re
from functools import lru_cache

from moments_app.engines.tables import any_pattern

_QUESTION = re.compile(r"[?？؟]+[\"'”’)\]»]*\s*$")
_QUOTED = re.compile(
    r"[\"“„«「][^\"”“»」]*\b(?:I|I'm|my|ich|mein\w*|yo|mi|je|mon|я|мой)\b[^\"”“»」]*[\"”“»」]|[“「][^”」]*我"
)


def is_question(text: str) -> bool:
    """Return whether a sentence is a question."""
    return bool(_QUESTION.search(text))


@lru_cache(maxsize=2_000)  # the same sentence is checked several times
def is_unreal(text: str) -> bool:
    """Return whether a sentence says something that its speaker doesn't hold as true."""
    said = text.replace("’", "'")
    return is_question(said) or bool(any_pattern("unreal").search(said)) or bool(_QUOTED.search(said))
