"""Find texts that say the same thing as a fact, and reword them when the fact is corrected, ended or withdrawn."""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from moments_app.engines.statements import AGE, HOME, RELATIONSHIP, WORK, statement_of
from moments_app.engines.words import plain_words, without_marks, words_of
from moments_app.models.correction import reworded
from sessions_app import lexemes

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
    """A fact's text before and after.

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
        return [(" ".join(old[a:b]), " ".join(new[c:d])) for _, a, b, c, d in changes]

    @property
    def is_name(self) -> bool:
        """Return whether a name was replaced. The new name then replaces the old one in all sentences."""
        if not self.replaces_names:
            return False
        said = statement_of(self.before)
        return bool(said) and said is not None and said.attribute not in _NO_NAMES

    def of(self, text: str) -> str:
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
            return [(old, new) for old, new in self.words if self.of(text) != text and reworded(text, old, new) != text]
        return [(sentence, self.after) for sentence in sentences_of(text) if self.says_same(sentence)]

    def names_in(self, text: str) -> list[tuple[str, str]]:
        """Return the wrong names and numbers that occur in a text, with their replacements."""
        words = dict.fromkeys(pair for part in self.parts for pair in part.words)
        return [(old, new) for old, new in words if _PARTICULAR.match(old) and reworded(text, old, new) != text]

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
        """Return whether a word of the sentence differs from one of the fact only in its marks, such as C++ and C."""
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
            if reworded(sentence, new, "") == sentence:  # otherwise, the word is already replaced
                sentence = reworded(sentence, old, new)
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
    """Yield each removed sentence with its replacement, which may be blank. The last one gets all that remain."""
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
