"""The request for a search of memory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from struct import pack, unpack

from django.utils import timezone

from sessions_app.models import UserProfile

# Words with which a question asks about the past, in the most common languages.
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|earlier|ago|back (?:then|when)|at (?:the|that) time|once|until|"
    r"in the past|history|no longer|any ?more|did|was|were|had|"
    r"last (?:year|month|week|spring|summer|autumn|fall|winter)|"
    r"(?:in|during|since|back in) (?:january|february|march|april|may|june|july|august|september|october|november|"
    r"december|(?:19|20)\d\d)|früher|vorher|damals|zuvor|avant|autrefois|antes|prima)\b",
    re.IGNORECASE,
)
# Words with which a question addresses the assistant. In Spanish, Italian and Portuguese, a verb alone is enough.
_ADDRESSED = re.compile(
    r"\b(?i:you|yours?|du|dich|dir|dein\w*|tu|te|toi|ton|vous|votre|tú|usted|voi|você|hai|jij|jou\w*|"
    r"\w{2,}[aei]ste|ты|тебе|тебя|вы|вам|вас)\b|\b(?i:t['’](?:as|es|avais)\b)|(?<=\w[ ])(?:Sie|Ihnen|Ihr\w*)\b|[你您]"
)
FACT = "fact"
MOST_WORDS = 64  # maximum words of a query that are searched
KINDS = (FACT, "moment", "turn")
MODES = ("hybrid", "semantic", "text")


@dataclass(frozen=True)
class Vector:
    """A query's vector, with the primary key and the width of the model that created it."""

    model: int
    dimensions: int
    numbers: list[float]

    @cached_property
    def text(self) -> str:
        """The numbers as a `halfvec`. Five digits are enough to distinguish half-precision numbers."""
        form = f"{len(self.numbers)}e"
        return f"[{','.join([f'{number:.5g}' for number in unpack(form, pack(form, *self.numbers))])}]"


@dataclass(frozen=True)
class RecallRequest:
    """A search of one person's memory.

    Args:
        since: only messages from this time or later.
        mode: search by words (`text`), by meaning (`semantic`), or by both (`hybrid`).
        vector: the vector of the text; without one, the search uses words only.
        as_of: only messages up to this time, and only facts that were known to be valid then; None: now.
        relevances: the reranker's scores by `rem://` address; results that have one are ordered by it.
        until: only messages before this time.
        about: only facts about the user (`SELF`) or about the known person with this key; blank: about anyone.
        must_fit: whether a context shows results only if one of them fits the text.
    """

    text: str
    kinds: Sequence[str] = KINDS
    since: datetime | None = None
    mode: str = "hybrid"
    vector: Vector | None = None
    as_of: datetime | None = None
    relevances: Mapping[str, float] = field(default_factory=dict)
    until: datetime | None = None
    about: str = ""
    must_fit: bool = False

    @property
    def searched_kinds(self) -> Sequence[str]:
        """The kinds to search. Only facts are about a particular person."""
        return [kind for kind in self.kinds if kind == FACT or not self.about]

    def now_of(self, user: UserProfile) -> datetime:
        """Return the time that the request asks about, in the person's time zone."""
        return (self.as_of or timezone.now()).astimezone(user.zone)

    @cached_property
    def asks_of_past(self) -> bool:
        """Whether the query seems to ask about the past."""
        return self.as_of is not None or bool(_PAST.search(self.text))

    @cached_property
    def asks_of_assistant(self) -> bool:
        """Whether the query seems to address the assistant, as in "What did you suggest?"."""
        return bool(_ADDRESSED.search(self.text))

    @property
    def degraded(self) -> bool:
        """Whether the request asked for a search by meaning, but has no vector."""
        return self.mode != "text" and self.vector is None

    @property
    def used_mode(self) -> str:
        """The mode that is used for the search."""
        return "text" if self.degraded else self.mode

    @property
    def searched_vector(self) -> Vector | None:
        """The vector, if memory is searched by meaning."""
        return self.vector if self.mode != "text" else None

    def by_mode(self) -> "list[RecallRequest]":
        """Return a separate request for each search."""
        modes = ("text", "semantic") if self.used_mode == "hybrid" else (self.used_mode,)
        return [replace(self, mode=mode) for mode in modes]
