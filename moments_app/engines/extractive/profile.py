"""The profile: what the person says about themselves, their interests and topics."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from moments_app.engines.calls.moments import DraftMoment, Profile
from moments_app.engines.extractive.language import words
from moments_app.engines.extractive.sentences import Sentence

PROFILE_MAX = 2_000  # characters
OWN_WORDS = "In the person's own words:"  # first line of a profile that nobody else began
KNOWN = 0.7  # of a statement's words that a line has
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


def profile_text(profile: Profile, everything: Iterable[Sentence]) -> str:
    """Return the profile so far and what is new that the person says about themselves, a line for each statement.

    The first paragraph stays: it may be an operator's. Beyond the limit the oldest lines after it are dropped.
    """
    head, _, rest = profile.summary.partition("\n")
    lines = _Lines(head)
    for line in rest.split("\n"):
        if line.strip():
            lines.add(line)
    for sentence in everything:
        if is_statement(sentence) and not lines.say(sentence.text):
            lines.add(f"- {sentence.text} ({sentence.turn.created_at:%Y-%m-%d})")
    return lines.text()[:8_000]


class _Lines:
    """The profile's lines, as many as there is room for: each statement is compared with these alone.

    Args:
        head: the first paragraph; blank where there is none.
    """

    def __init__(self, head: str) -> None:
        self._head = head
        self._head_words = frozenset(words(head))
        self._lines: deque[tuple[str, frozenset[str]]] = deque()
        self._size = 0

    def add(self, line: str) -> None:
        self._lines.append((line, frozenset(words(line))))
        self._size += len(line) + 1
        while self._lines and len(self._head or OWN_WORDS) + self._size > PROFILE_MAX:
            self._size -= len(self._lines.popleft()[0]) + 1

    def say(self, text: str) -> bool:
        """Tell whether a line says nearly all of a text already."""
        own = set(words(text))
        known = (self._head_words, *(said for _line, said in self._lines))
        return any(len(own & said) >= KNOWN * len(own) for said in known)

    def text(self) -> str:
        head = self._head or (OWN_WORDS if self._lines else "")
        return "\n".join([head, *(line for line, _words in self._lines)]).strip()


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
