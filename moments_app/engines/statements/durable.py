"""How long what a text says will be true and asked for: names, kin, health, places, dates and preferences last."""

import re

from moments_app.engines.statements.said import statement_of

MOST = 1.0  # of what has one value at a time
_KIN = (
    "wife husband partner fianc[ée]e? girlfriend boyfriend daughter son child children baby brother sister "
    "mother father mom mum dad parents grandmother grandfather grandma grandpa aunt uncle cousin nephew niece "
    "dog cat puppy kitten"
).replace(" ", "|")
WORDS_OF_KIN = re.compile(rf"\b(?:{_KIN})s?\b", re.IGNORECASE)
WORDS_OF_HEALTH = re.compile(
    r"\b(?:allerg\w+|diabet\w+|asthma\w*|pregnan\w+|diagnos\w+|medication|surgery|vegan|vegetarian|intoleran\w+|"
    r"disabilit\w+|therap\w+|epilep\w+|cancer|migraines?)\b",
    re.IGNORECASE,
)
WORDS_OF_TASTE = re.compile(
    r"\b(?:loves?|likes?|prefers?|hates?|dislikes?|enjoys?|favou?rite|can't stand)\b", re.IGNORECASE
)
_DURABLE = {
    "kin": (0.8, WORDS_OF_KIN),
    "names": (0.7, re.compile(r"\b(?:called|named|names? (?:is|are))\b", re.IGNORECASE)),
    "health": (0.9, WORDS_OF_HEALTH),  # it may do harm to forget it
    "places": (0.6, re.compile(r"\b(?:lives?|living|moved|born|grew up|from) (?:in|to|near)? ?[A-Z]")),
    "dates": (0.5, re.compile(r"\b(?:birthday|anniversary|born on|wedding)\b", re.IGNORECASE)),
    "preferences": (0.5, WORDS_OF_TASTE),
}


def worth_of(text: str) -> float:
    """Return how much longer a text is kept than what is only new, between 0 and 1."""
    if statement_of(text):
        return MOST
    return max((worth for worth, pattern in _DURABLE.values() if pattern.search(text)), default=0.0)
