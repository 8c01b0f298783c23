"""The profile: what the person says about themselves, their interests and topics."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from moments_app.engines.calls.moments import DraftMoment, Profile
from moments_app.engines.extractive.language import words
from moments_app.engines.extractive.sentences import Sentence

PROFILE_MAX = 2_000  # characters
LINE_WORDS = (4, 40)  # of a statement or a lesson: at least, at most
STATEMENT_START = 32  # characters

_ABOUT_ME = re.compile(
    r"\bI(?:'m| am| was)? (?:a|an|the|from|allergic|born|married|single|vegan|vegetarian|working|training|learning)\b|"
    r"\bI (?:live|work|study|teach|run|own|have|love|like|prefer|hate|enjoy|always|never|moved|speak|play)\b|"
    r"\b[Mm]y (?:name|wife|husband|partner|daughter|son|kids|children|brother|sister|mother|father|mom|mum|dad|dog|cat|"
    r"job|birthday|favourite|favorite|dream|goal)\b|\b(?:[Ii]ch (?:bin|habe|wohne|arbeite|mag|liebe)|[Mm]eine? )\b"
)
_INTEREST = re.compile(
    r"\bI(?:'m| am)? (?:really |also |just |so )?(?:love|like|enjoy|into|learning|passionate about|interested in|"
    r"keen on) (?:to )?((?:[\w'-]+ ?){1,3})"
)
_DANGLING = frozenset(
    ("a an the to and or of in on at for with about it that this so but my your them you how when").split()
)


def profile_text(profile: Profile, everything: Sequence[Sentence]) -> str:
    """Return the profile so far and what is new that the person says about themselves, a line for each statement.

    The first paragraph stays: it may be an operator's. Beyond the limit the oldest lines after it are dropped.
    """
    head, _, rest = profile.summary.partition("\n")
    lines = [line for line in rest.split("\n") if line.strip()]
    for sentence in everything:
        if is_statement(sentence) and not _is_known(sentence, [head, *lines]):
            lines.append(f"- {sentence.text} ({sentence.turn.created_at:%Y-%m-%d})")
    if not head and lines:
        head = "In the person's own words:"
    while lines and len(head) + sum(len(line) + 1 for line in lines) > PROFILE_MAX:
        lines.pop(0)
    return "\n".join([head, *lines]).strip()[:8_000]


def is_statement(sentence: Sentence) -> bool:
    least, most = LINE_WORDS
    return (
        sentence.turn.role == "user"
        and least <= len(sentence.text.split()) <= most
        and len(sentence.terms) >= 2
        and not sentence.text.rstrip().endswith("?")
        # At its beginning: "You sound like my mother" says nothing about her.
        and bool(_ABOUT_ME.search(sentence.text[:STATEMENT_START]))
    )


def _is_known(sentence: Sentence, lines: Iterable[str]) -> bool:
    """Tell whether a line says nearly all of a sentence already."""
    own = set(words(sentence.text))
    return any(len(own & set(words(line))) >= 0.7 * len(own) for line in lines)


def new_interests(profile: Profile, everything: Iterable[Sentence]) -> list[str]:
    known = {interest.casefold() for interest in profile.interests}
    found: dict[str, str] = {}
    for sentence in everything:
        for match in _INTEREST.findall(sentence.text) if sentence.turn.role == "user" else ():
            phrase = words(match)
            while phrase and phrase[-1] in _DANGLING:
                phrase.pop()
            text = " ".join(phrase)
            if len(text) > 3 and phrase[0] not in _DANGLING and text not in known:
                found.setdefault(text, text)
    return list(found)[:10]


def new_topics(profile: Profile, moments: Sequence[DraftMoment]) -> list[str]:
    known = {topic.casefold() for topic in profile.preferred_topics}
    counts = Counter(tag for moment in moments for tag in moment.topic_tags[:4])
    return [tag for tag, _ in counts.most_common() if tag not in known][:5]
