"""Find texts that say the same thing as a fact, and reword them when the fact is corrected, ended or withdrawn.

A correction changes the texts that engines wrote from turns: those of moments, rolling summaries and partition events
(digests). So code that reads a text doesn't need to know about corrections.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from moments_app.engines.statements import AGE, HOME, RELATIONSHIP, WORK, statement_of
from moments_app.engines.words import plain_words, speaker_of, without_marks, words_of
from moments_app.models import Correction, Moment, Summary
from moments_app.models.correction import replace_words
from moments_app.moments.partition import rewrite
from moments_app.streams.texts import merged, merged_text
from sessions_app import lexemes
from sessions_app.models import Message, Session

Row = Moment | Summary | Message
KINDS: dict[type[Row], str] = {Moment: "moment", Summary: "summary", Message: "event"}
FIELDS: dict[type[Row], tuple[str, ...]] = {
    Moment: ("summary", "detail"),
    Summary: ("text", "facts"),
    Message: ("context", "lessons", "recent_moments_summary"),  # in the payload of a partition event
}
EVENT = "#event"  # address suffix of partition events
MIN_SHARED_WORDS = 0.7  # minimum share of a fact's words in a sentence that says the same thing
MIN_WORDS = 2  # if a sentence of a fact has fewer words, it must match exactly
_WORD = re.compile(r"[^\W_](?:[\w'’-]*[^\W_])?[+#]*")
_SENTENCE = re.compile(r"\S[^\n]*?(?:[.!?]+(?=\s|$)|[。！？]+|(?=\n)|$)\s*")
# Matches a sentence with an optional list marker and date before it, or a date after it.
_FRAMED = re.compile(
    r"(?P<mark>(?:- )?(?:\[\d{4}-\d\d-\d\d\] |\d{4}-\d\d-\d\d: )?).*?(?P<end>(?P<day> \(\d{4}-\d\d-\d\d\))?\s*)",
    re.DOTALL,
)
_NO_NAMES = (HOME, WORK, AGE, RELATIONSHIP)
_WRITERS = frozenset("user assist".split())  # stems of "user" and "assistant", which name the speaker
_NAME = re.compile(r"\b(?:[A-Z]|[^\W_]*\d[^\W_]*[^\W\d_])[\w'’-]*|\b[^\W\d_]+\d\w*")
_PARTICULAR = re.compile(r"[A-Z\d]")  # the start of a name or a number
_STANDS_FOR_SOMEBODY = re.compile(r"\b(?:I|me|my|we|us|our|he|his|she|her|they|their)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Rewording:
    """A fact's text before and after a change.

    Args:
        after: The new text. Blank if the fact was ended or withdrawn.
        fact: The fact's whole old text, if `before` is only one sentence of it. Needed for the names that it contains.
        replaces_names: whether a new name also replaces the old one in sentences that say something else.
        keeps: sentences that stay unchanged.
    """

    before: str
    after: str
    fact: str = ""
    replaces_names: bool = True
    keeps: frozenset[str] = frozenset()

    @cached_property
    def parts(self) -> "list[Rewording]":
        """One rewording for each changed sentence. Another text may contain only one of these sentences."""
        old, new = sentences_of(self.before), sentences_of(self.after)
        if len(old) < 2:
            return [self]
        return [Rewording(*pair, fact=self.before, replaces_names=self.replaces_names) for pair in _changed(old, new)]

    @cached_property
    def words(self) -> list[tuple[str, str]]:
        """The replaced words with their replacements. Empty if the whole sentence is different."""
        old, new = _WORD.findall(self.before), _WORD.findall(self.after)
        matcher = SequenceMatcher(None, old, new, autojunk=False)
        changes = [change for change in matcher.get_opcodes() if change[0] != "equal"]
        if not new or matcher.ratio() < 0.5 or any(change[0] != "replace" for change in changes):
            return []
        if changes and changes[0][1] == self._subject_words:
            return []
        return [(" ".join(old[a:b]), " ".join(new[c:d])) for _, a, b, c, d in changes]

    @property
    def _subject_words(self) -> int | None:
        """Return the number of words before the verb if the speaker becomes the subject, else None.

        An example is "User: I'm allergic to nuts", corrected to "User is allergic to nuts". Replacing only "I'm" with
        "is" would be wrong in a text that doesn't name the speaker.
        """
        old, new = speaker_of(self.before), speaker_of(self.after)
        return len(_WORD.findall(old or new)) if old != new else None

    @property
    def is_name(self) -> bool:
        """Return whether a name was replaced. The new name then replaces the old one in all sentences."""
        if not self.replaces_names:
            return False
        text = statement_of(self.before)
        return bool(text) and text is not None and text.attribute not in _NO_NAMES

    def apply_to(self, text: str) -> str:
        """Return a text after rewording the sentences that say the same thing.

        A new sentence that the text already contains is not added again.
        """
        pairs = [(sentence, self._sentence(sentence)) for sentence in _SENTENCE.findall(text)]
        kept = {old.strip() for old, new in pairs if new == old}
        return "".join(new if new == old else _without(new, kept) for old, new in pairs).strip()

    @property
    def new_words(self) -> list[str]:
        return [new for part in self.parts for _old, new in part.words]

    def wrong_in(self, text: str) -> list[tuple[str, str]]:
        return list(dict.fromkeys(pair for part in self.parts for pair in part._wrong_in(text)))

    def _wrong_in(self, text: str) -> list[tuple[str, str]]:
        if self.words:
            is_changed = self.apply_to(text) != text
            return [(old, new) for old, new in self.words if is_changed and replace_words(text, old, new) != text]
        return [(sentence, self.after) for sentence in sentences_of(text) if self.says_same(sentence)]

    def names_in(self, text: str) -> list[tuple[str, str]]:
        """Return the wrong names and numbers that occur in a text, with their replacements."""
        words = dict.fromkeys(pair for part in self.parts for pair in part.words)
        return [(old, new) for old, new in words if _PARTICULAR.match(old) and replace_words(text, old, new) != text]

    def says_same(self, text: str) -> bool:
        """Return whether a text says the same thing as the fact, or as one of its changed sentences."""
        return any(part._is_said_in(text) for part in self.parts)

    def _is_said_in(self, text: str) -> bool:
        if self._differs_in_marks(text):
            return False
        # Use the fact's languages for both, because a single word can change the detected language of a sentence.
        languages = lexemes.likely_languages(self.fact or self.before)
        own = lexemes.stems_in(self.before, languages) - _WRITERS
        if self.fact and len(own) < MIN_WORDS:
            return plain_words(self.before) == plain_words(text)
        if not self.after or not self.words:
            own_plain = plain_words(self.before)
            if own_plain and own_plain in plain_words(text):
                return True
        is_alike = bool(own) and len(own & lexemes.stems_in(text, languages)) >= MIN_SHARED_WORDS * len(own)
        return is_alike and not self._is_of_another(text, languages)

    def _is_of_another(self, sentence: str, languages: tuple[str, ...]) -> bool:
        """Return whether a sentence is about someone else: "Ottokar lives in Oslo" is not "Marla lives in Oslo"."""
        if _STANDS_FOR_SOMEBODY.search(sentence):
            return False
        told, names = _names(self.fact or self.before, languages), _names(sentence, languages)
        return bool(told - names) and bool(names - told)

    def _differs_in_marks(self, sentence: str) -> bool:
        """Return whether the sentence has a word of the fact with other marks, such as C instead of C++."""
        own, said = set(words_of(self.before)), set(words_of(sentence))
        return not set(map(without_marks, own - said)).isdisjoint(map(without_marks, said - own))

    def _sentence(self, sentence: str) -> str:
        if sentence.strip() in self.keeps:
            return sentence
        read = (part._reworded(sentence) for part in self.parts)
        return next((text for text in read if text != sentence), sentence)

    def _reworded(self, sentence: str) -> str:
        same = self._is_said_in(sentence)
        if not self.words:
            return self._in_place_of(sentence) if same else sentence
        if not (same or self.is_name):
            return sentence
        for old, new in self.words:
            if replace_words(sentence, new, "") == sentence:  # otherwise, the word is already replaced
                sentence = replace_words(sentence, old, new)
        return sentence

    def _in_place_of(self, sentence: str) -> str:
        """Return the replacement of a sentence, with the sentence's list marker and date."""
        framed = _FRAMED.fullmatch(sentence)
        if not framed or not self.after:
            return ""
        return framed["mark"] + (self.after.rstrip(".") if framed["day"] else self.after) + framed["end"]


def _without(text: str, others: Set[str]) -> str:
    return "".join(sentence for sentence in _SENTENCE.findall(text) if sentence.strip() not in others)


def sentences_of(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE.findall(text)]


def _changed(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each removed sentence with its replacement, which may be blank.

    The last one gets all remaining new sentences.
    """
    for tag, first, last, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = old[first:last], list(new[start:stop])
        for sentence in gone if tag != "equal" else ():
            taken = come if sentence == gone[-1] else come[:1]
            come = come[len(taken) :]
            if sentence not in new:
                yield sentence, " ".join(taken)


def _names(text: str, languages: tuple[str, ...]) -> Set[str]:
    """Return the stems of names, numbers, and words with marks."""
    return lexemes.stems_in(" ".join(_NAME.findall(text)), languages) - _WRITERS


# --- the texts of moments, summaries and partition events ---


def texts_of(row: Row) -> dict[str, Any]:
    """Return the texts of a row, keyed by field. A value is a text, a list of texts, or a summary's list of facts.

    Omit other values, which imported rows may have.
    """
    if isinstance(row, Message):
        payload = row.payload if isinstance(row.payload, dict) else {}
        found = {name: payload.get(name) for name in FIELDS[Message]}
    else:
        found = {name: getattr(row, name) for name in FIELDS[type(row)]}
    return {name: text for name, text in found.items() if _is_text(text)}


def _is_text(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one.get("fact") if isinstance(one, dict) else one, str) for one in value)
    return isinstance(value, str)


def as_one_text(text: Any) -> str:
    """Return a value of `texts_of` as one text, with a line for each item of a list."""
    if isinstance(text, str):
        return text
    return "\n".join(one["fact"] if isinstance(one, dict) else one for one in text)


def address_of(row: Row) -> str:
    """Return the `rem://` address of a row. A partition event's address contains the number of the turn before it."""
    if isinstance(row, Moment):
        return row.uri
    session = f"rem://sessions/{row.session.session_id}"
    return f"{session}/summary" if isinstance(row, Summary) else f"{session}/messages/{row.sequence}{EVENT}"


def set_text(row: Row, field: str, text: Any) -> None:
    """Store a text of a row. For a moment, delete the vectors of the former text."""
    if isinstance(row, Message):
        rewrite(row, (row.payload or {}) | {field: text}, is_of_request=True)
        return
    setattr(row, field, text)
    if isinstance(row, Moment):
        row.save(update_fields=[field, "updated_at"])
        row.embeddings.all().delete()
    else:
        row.save(update_fields=[field])


def reworded(text: Any, rewording: Rewording) -> Any:
    """Apply a rewording to a value of `texts_of`. Omit lines and list items that become empty."""
    if isinstance(text, str):
        lines = [(line, _reworded(line, rewording)) for line in text.split("\n")]
        return "\n".join(new for line, new in lines if new or not line.strip())
    items = [(one, reworded(one["fact"] if isinstance(one, dict) else one, rewording)) for one in text]
    return [one | {"fact": new} if isinstance(one, dict) else new for one, new in items if new]


def _reworded(line: str, rewording: Rewording) -> str:
    """Return a reworded line. An unchanged line keeps its spaces, and a changed line its indentation."""
    old = line.strip()
    new = rewording.apply_to(old)
    if new == old:
        return line
    return line[: len(line) - len(line.lstrip())] + new if new else ""


def merged_texts(base: Any, before: Any, after: Any) -> Any:
    """Apply `merged_text` to the values of `texts_of`. Lists are merged item by item."""
    if isinstance(base, str):
        return merged_text(base, before, after)
    keys = [[json.dumps(one, sort_keys=True) for one in items] for items in (base, before, after)]
    return [json.loads(key) for key in merged(*keys)]


@dataclass(frozen=True)
class TextChange:
    """A text that repeats a fact, in two versions: before and after the fact was corrected.

    Args:
        kind: the kind of the text's row: a fact, a moment, a summary, a partition event, a line of a stream's text,
            or a turn, which is only marked.
        before, after: the text, or a list of texts. A blank `after` means that the text is removed or no longer valid.
    """

    kind: str
    ref: str
    pk: int
    field: str
    before: Any
    after: Any


def text_changes(rows: Iterable[Row], rewording: Rewording) -> Iterator[tuple[Row, TextChange]]:
    """Yield the changes that a rewording would make to the texts of rows, each with its row."""
    for row in rows:
        for field, text in texts_of(row).items():
            if (after := reworded(text, rewording)) != text:
                yield row, TextChange(KINDS[type(row)], address_of(row), row.pk, field, text, after)


def rows_of_sessions(user: int, sessions: Collection[int]) -> Iterator[Row]:
    """Yield the summaries and partition events of a person's sessions, oldest first."""
    summaries = Summary.objects.completed().filter(user=user, session__in=sessions)
    yield from summaries.select_related("session").order_by("pk")
    events = Message.objects.partitions().filter(user_id=user, session__in=sessions)
    yield from events.select_related("session").order_by("session", "sequence", "pk")


def rows_since(session: Session, at: datetime) -> Iterator[Row]:
    """Yield the rows written from a session's turns since a time."""
    yield from session.moments.filter(created_at__gte=at)
    summaries = Summary.objects.for_session(session).completed().filter(completed_at__gte=at)
    yield from summaries.select_related("session")
    yield from session.messages.partitions().filter(user_id=session.user_id, arrived_at__gte=at)


def reword(rows: Iterable[Row], rewording: Rewording) -> list[TextChange]:
    """Apply a rewording to the texts of rows, save the changed texts, and return the changes."""
    changes = list(text_changes(rows, rewording))
    for row, change in changes:
        set_text(row, change.field, change.after)
    return [change for _, change in changes]


def inverse_rewording(correction: Correction, *, replaces_names: bool = True) -> Rewording:
    """Return the rewording that reverts a correction."""
    return Rewording(correction.after, correction.before, fact=correction.after, replaces_names=replaces_names)


# --- texts that were restored by the undo of a retraction ---


def apply_edits_since(rows: Iterable[Row], session: Session, at: datetime) -> None:
    """Apply corrections made or undone since a time to older texts."""
    rows = list(rows)
    own = Correction.objects.filter(user=session.user_id)
    made = own.in_effect().filter(turns__session=session, created_at__gt=at).distinct()
    undone = own.filter(undone_at__gt=at, created_at__lte=at)
    edits = [*((one.created_at, _apply, one) for one in made), *((one.undone_at, _undo, one) for one in undone)]
    for _at, edit, correction in sorted(edits, key=lambda edit: (edit[0], edit[2].pk)):
        edit(correction, rows)


def _apply(correction: Correction, rows: Sequence[Row]) -> None:
    """Change texts, and record the changes so that the correction can be undone."""
    changes = reword(rows, Rewording(correction.before, correction.after, fact=correction.before))
    if changes:
        correction.changes = [*correction.changes, *map(asdict, changes)]
        correction.save(update_fields=["changes"])


def _undo(correction: Correction, rows: Sequence[Row]) -> None:
    for row in rows:
        for change in correction.changes:
            if (change["kind"], change["pk"]) == (KINDS[type(row)], row.pk):
                restore(row, change, correction)


def restore(row: Row, change: Mapping[str, Any], correction: Correction) -> None:
    """Revert a correction's change to a text of a row. Later changes to the text are kept."""
    field = change["field"]
    if (now := texts_of(row).get(field)) is not None:
        set_text(row, field, _restored(change, now, correction))


def _restored(change: Mapping[str, Any], now: Any, correction: Correction) -> Any:
    if now == change["after"]:
        return change["before"]
    if correction.kind == Correction.Kind.CORRECTED:
        before = frozenset(sentences_of(as_one_text(change["before"])))
        return reworded(now, replace(inverse_rewording(correction), keeps=before))
    return merged_texts(change["before"], change["after"], now)
