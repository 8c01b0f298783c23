"""What kind of statement a sentence is, by its attribute or by words that it has."""

import re

from moments_app.engines.statements.dates import is_to_come
from moments_app.engines.statements.durable import WORDS_OF_HEALTH, WORDS_OF_KIN, WORDS_OF_TASTE
from moments_app.engines.statements.first_person import AGE, HOME, NAME, WORK
from moments_app.engines.statements.said import statement_of

OTHER, PLAN = "other", "plan"
_OF_ATTRIBUTES = {HOME: "home", WORK: "work", NAME: "identity", AGE: "identity"}  # any other is of people
_ANSWERING = r"answers?|answered|replies|reply|responses?|respond|emojis?|bullet points?|examples?|explanations?"
# The first that fits. What harms if it is forgotten comes first.
_KINDS = {
    "health": WORDS_OF_HEALTH.pattern,
    "instruction": rf"\b(?:always|never|prefers?|wants?|likes?|don't|do not|please)\b.{{0,40}}\b(?:{_ANSWERING})\b|"
    r"\b(?:prefers?|wants?|likes?) to be (?:called|addressed|answered)\b|\bcall me\b",
    PLAN: r"\b(?:plans? to|planning|going to|will|intends? to|about to|hopes? to|next (?:week|month|year)|booked)\b",
    "goal": r"\b(?:goal|aims? to|wants? to|would like to|dreams? of|training for|saving for)\b",
    "task": r"\b(?:to-do|todo|needs? to|has to|have to|must|deadline|due (?:on|by))\b",
    "problem": r"\b(?:struggl\w+|problems?|trouble|issues? with|broke|broken|stuck|worr(?:y|ied|ies)|complain\w*)\b",
    "preference": WORDS_OF_TASTE.pattern,
    "identity": r"\b(?:(?:is|was|am) (?:originally )?(?:from|born)|grew up|birthday|years old|speaks?|native)\b",
    "relationship": WORDS_OF_KIN.pattern,
    "home": r"\b(?:lives?|living|moved|resides?|based) (?:in|to|near)\b|\b(?:apartment|flat|house|landlord)\b",
    "work": r"\b(?:work(?:s|ed|ing)?|stud(?:y|ies|ied|ying)) (?:as|at|for|in)\b|\b(?:job|employer|colleagues?)\b",
    "event": r"\b(?:went|visited|attended|met|bought|started|finished|won|lost|sold|yesterday)\b|"
    r"\blast (?:week|month|year)\b",
}
_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}


def kind_of(text: str) -> str:
    """Return the kind of a statement, or `other` where no word tells it."""
    if said := statement_of(text):
        return _OF_ATTRIBUTES.get(said.attribute, "relationship")
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text) or _is_plan(kind, text)), OTHER)


def _is_plan(kind: str, text: str) -> bool:
    return kind == PLAN and is_to_come(text)
