"""Find the kind of a statement, and how long it stays true and useful, by its attribute or its words."""

import re

from moments_app.engines.statements.dates import is_to_come
from moments_app.engines.statements.said import AGE, HOME, NAME, WORK, statement_of
from moments_app.engines.tables import filled, lines_of

OTHER, PLAN = "other", "plan"
MOST = 1.0  # worth of an attribute with one value at a time
_OF_ATTRIBUTES = {HOME: "home", WORK: "work", NAME: "identity", AGE: "identity"}  # others: `relationship`
_KINDS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in lines_of("kinds")]
_PARTS = {kind.upper(): pattern for kind, pattern in lines_of("kinds")}
_WORTH = [(float(worth), re.compile(filled(pattern, _PARTS))) for worth, pattern in lines_of("worth")]


def kind_of(text: str) -> str:
    """Return the kind of a statement, or `other` if no word indicates one."""
    if said := statement_of(text):
        return _OF_ATTRIBUTES.get(said.attribute, "relationship")
    return next((kind for kind, pattern in _KINDS if pattern.search(text) or _is_plan(kind, text)), OTHER)


def _is_plan(kind: str, text: str) -> bool:
    return kind == PLAN and is_to_come(text)


def worth_of(text: str) -> float:
    """Return how much longer a text is kept than other new text, from 0 to 1: names, family and health last longest."""
    if statement_of(text):
        return MOST
    return next((worth for worth, pattern in _WORTH if pattern.search(text)), 0.0)
