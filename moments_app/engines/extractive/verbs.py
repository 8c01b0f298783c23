"""English verbs: which words are forms of one, and how it goes with "she"."""

import re
from dataclasses import dataclass
from functools import cache

from moments_app.engines.extractive.tables import entries, word_set

_SINGULAR = {"am": "is", "are": "is", "were": "was", "have": "has", "do": "does", "don't": "doesn't", "aren't": "isn't"}
_SINGULAR |= {"haven't": "hasn't", "weren't": "wasn't", "ain't": "isn't"}
_PLURAL = {"am": "are", "is": "are", "was": "were", "wasn't": "weren't", "isn't": "aren't"}
_SAME = frozenset(
    "is was had did has will would can could should may might must shall cannot didn't hadn't won't wouldn't can't "
    "couldn't shouldn't mustn't used ought".split()
)
MODALS = _SAME - frozenset("is was had has used".split()) | {"to", "do", "don't", "does", "doesn't"}

AUXILIARIES = _SAME | frozenset(_SINGULAR)

_PREFIX = re.compile(r"^(?:re|over|under|mis|un|out)(?=\w{3})")  # "retook" is a past as "took" is


@dataclass(frozen=True)
class _Verbs:
    """Forms of verbs, each with its base."""

    bases: frozenset[str]
    unchanged: frozenset[str]
    pasts: frozenset[str]
    participles: frozenset[str]
    thirds: frozenset[str]
    gerunds: frozenset[str]


@cache
def _verbs() -> _Verbs:
    irregular = [tuple(forms.split()) for forms in entries("irregular")]
    bases = word_set("verbs") | {base for base, _past, _participle in irregular}
    same = {base for base, past, _participle in irregular if base == past}
    regular = bases - {base for base, _past, _participle in irregular}
    past = {_with_ed(base) for base in regular}
    return _Verbs(
        bases=frozenset(bases),
        unchanged=frozenset(same),
        pasts=frozenset(past | {past for _base, past, _participle in irregular} - same),
        participles=frozenset(past | {participle for _base, _past, participle in irregular}),
        thirds=frozenset(third(base) for base in bases),
        gerunds=frozenset(form for base in bases for form in _with_ing(base)),
    )


def singular(verb: str) -> str:
    """Return a verb, as it goes with "I" or "we", as it goes with "she"."""
    first, hyphen, last = verb.rpartition("-")
    if hyphen:
        return f"{first}-{singular(last)}"
    low = verb.lower()
    if low in _SINGULAR:
        return _SINGULAR[low]
    if low in _SAME or is_past(low) or not low.isalpha():
        return verb
    return third(verb)


def plural(verb: str) -> str:
    """Return a verb, as it goes with "I", as it goes with "they"."""
    return _PLURAL.get(verb.lower(), verb)


def third(base: str) -> str:
    """Return the form of the third person of a regular verb."""
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{base}es"
    return f"{base[:-1]}ies" if base.endswith("y") and base[-2:-1] not in "aeiou" else f"{base}s"


def is_past(word: str) -> bool:
    """Tell whether a word is the past of a verb: "read" and "put" are taken for it."""
    forms = _verbs()
    if word in forms.pasts or word in forms.unchanged or _PREFIX.sub("", word) in forms.pasts:
        return True
    return word.endswith("ed") and not word.endswith("eed") and word not in forms.bases


def is_finite(word: str) -> bool:
    """Tell whether a word can be a predicate's verb."""
    return word in _SAME or word in _SINGULAR or is_past(word) or is_third(word)


def is_base(word: str) -> bool:
    return word in _verbs().bases


def is_participle(word: str) -> bool:
    return word in _verbs().participles or (word.endswith("ed") and not is_base(word))


def is_form(word: str) -> bool:
    """Tell whether a word is a form of a verb, whatever else it may be."""
    forms = _verbs()
    return word in forms.bases or word in forms.pasts or word in forms.participles or word in forms.thirds


def is_gerund(word: str) -> bool:
    return word in _verbs().gerunds


def gerund(verb: str) -> str:
    """Return the gerund of a verb, or of one that is one already."""
    return verb if is_gerund(verb) else _with_ing(verb)[0]


def is_third(word: str) -> bool:
    return word in _verbs().thirds or word in ("is", "has", "does")


def _with_ed(base: str) -> str:
    if base.endswith("e"):
        return f"{base}d"
    if base.endswith("y") and base[-2:-1] not in "aeiou":
        return f"{base[:-1]}ied"
    return f"{base}{base[-1]}ed" if _doubles(base) else f"{base}ed"


def _with_ing(base: str) -> tuple[str, ...]:
    """Return the gerunds that a verb may have."""
    if base.endswith("ie"):
        return (f"{base[:-2]}ying",)
    if base.endswith("e") and not base.endswith("ee"):
        return (f"{base[:-1]}ing", f"{base}ing")
    return (f"{base}{base[-1]}ing", f"{base}ing") if _doubles(base) else (f"{base}ing",)


def _doubles(base: str) -> bool:
    """Tell whether a short verb doubles its last letter: stop, plan, swim."""
    vowels = sum(letter in "aeiou" for letter in base)
    return vowels == 1 and base[-1] not in "aeiouwxy" and base[-2:-1] in tuple("aeiou")
