"""Verbatim sentences of a window of turns: find those that are clear without context, and choose among them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from itertools import groupby, pairwise

from moments_app.engines.extractive.language import (
    ENGLISH,
    content_words,
    in_quotation,
    is_wide,
    language_of,
    sentences,
    words,
)
from moments_app.engines.statements import is_not_asserted, is_question, statement_of, worth_of
from moments_app.engines.statements.dates import has_relative_time, with_dates
from moments_app.engines.statements.named_people import RELATIONSHIPS
from moments_app.engines.transcript import Turn
from moments_app.engines.words import any_of, any_pattern, english, fill_pattern, in_digits, table_lines, table_words

ROLE_WEIGHT = {"user": 1.0, "assistant": 0.75, "tool": 0.3}
VOCABULARY_CHARS = 20_000  # maximum characters of a turn that are read for the vocabulary
DATED, PARTICULAR = 1.7, 1.3  # factors for a sentence with a relative time, and for one with a number or a name
VAGUE = 0.4  # factor for a sentence that is unclear without context
MIN_WORDS = 3  # minimum words of a meaningful sentence
MIN_WORDS_OTHER_LANGUAGES = 6  # minimum words in a language whose small talk is not recognized
MIN_CHARACTERS = 12  # minimum characters in a script without spaces
MIN_LASTING = 4  # minimum characters in such a script for a sentence with lasting information about the speaker
LITTLE_WORTH = 0.5  # a sentence with a higher worth is never about nobody
MIN_LETTERS = 0.6  # minimum share of letters and spaces in a sentence; code and tables have less

# "Maria: Hey John!", as in a transcript of two people. A single letter is not a name: "Q: Who? A: Me."
_SPEAKER = re.compile(r"^([^\W\d_][\w'’.-]{1,30}(?: [^\W\d_][\w'’.-]{1,30})?):\s+(?=\S)")
# Where a sentence may be split: before a clause that continues with the same first-person subject.
_AND = r"(?:and|but|und|aber|y|pero|et|mais|и|а)"
_PIECE = re.compile(rf"(?<=[,;，；])(?=.)|(?=\s{_AND}\s)")
_SUBJECT = re.compile(r"\b(?:I(?:'m|’m)?|[Ii]ch|[Jj]e|[Jj]'|Я|я)(?=\W)|我")
_LOOSE_END = re.compile(r"[\s,;，；]+$")
_ENDS = ".!。！"  # marks that end a statement
_JOINT = re.compile(rf"^\s*(?:{_AND}\s+)?")
_DIGIT = re.compile(r"\d")
_PARTICULAR = re.compile(r"(?<!\d)(?!100%)\d|(?<=[a-z,] )[A-Z][a-z]")  # a number or a name

# Small talk, sentences that need context, and information about the speaker.
_REACTION = re.compile(rf"(?:{any_of('reactions')})(?![\w'])", re.IGNORECASE)
# "You" for the listener, but not for people in general: "From the roof you can see the sea."
_LISTENER = re.compile(
    r"\byou(?:r|rs|rself|'re|'ve|'d|'ll)?\b(?! (?:also )?(?:can|could|get|have to|just|must|need)\b)", re.IGNORECASE
)
# "Honesty is key", "Finding friends takes courage". "Fishing is great" isn't one, because it shows what somebody likes.
_PLATITUDE = re.compile(
    rf"(?!(?:the|this|these|an?|his|her|their)\b)(?:[\w'-]+ ){{0,5}}?[\w-]+(?: (?:is|are)|'s)(?: [\w']+)?"
    rf"(?: an?| the)? (?:{any_of('importance')})\b"
    rf"|(?!(?:{any_of('activities')})\b)\w+ing [^.,;]*?(?: (?:is|can|takes)|'s)(?: [\w']+){{0,3}}"
    rf" (?:{any_of('praise')})\b",
    re.IGNORECASE,
)
# a greeting with a name, even one that is not a speaker's
_GREETED = r"(?:[Hh]i|[Hh]ey|[Hh]ello|[Dd]ear) [A-Z][\w'-]+(?=[,!.])"
_OPENERS = 3  # maximum interjections before the last one; the limit prevents exponential time
_NICKNAME = 3  # minimum letters of a short form of a name
_PRONOUN = re.compile(r"\b(?:he|him|his|she|her|hers|they|them|it)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"(?i:\b(?:my|our|an?|the|two|three|some|his|her|their|\d+) [^\W\d_])|(?<=[a-z,] )[A-Z][a-z]"
    r"|[,;] | (?:and|but|because|when) "
    r"|^[A-Z][a-z]{2,} (?!a|the)"
)
_PART = re.compile(r"^[^\w\"“¿¡(]|[:(,;–—-]$")
# kinds: an instruction on how to answer, and any lasting information in a language other than English
INSTRUCTION, OTHER = "instruction", "other"
MAX_PIECES = 30  # maximum pieces; a sentence with more is not split, because the time is quadratic
START_CHARS = 48  # number of characters at the start of a sentence in which to look for the first person

_FIRST_PERSON = re.compile(r"\b(?:I|me|[Mm]y|mine|myself|[Ww]e|us|[Oo]ur|ours)\b(?!\.)")
_SPEAKER_ALONE = re.compile(r"\b(?:I|me|my|mine)\b(?!\.)", re.IGNORECASE)
_OF_LISTENER = re.compile(r"you(?:r|rs|'re|'ve|'d|'ll)?\b", re.IGNORECASE)  # "You sound like my mother."
_CALLED = re.compile(r"\b(?:called|named|names? (?:is|are|was))\s+[A-Z]")
FAMILY = {*"sister brother mother father wife husband daughter son grandmother grandfather".split()}
# Words that mean the speaker's own relative at the start of a sentence: "女儿六岁". Words of one character are left
# out, because they also begin names, such as 哥本哈根.
_OWN_RELATIVES = {
    "zh": tuple(word for word, meaning in RELATIONSHIPS["zh"].items() if meaning in FAMILY and len(word) > 1)
}
_PATTERNS = {
    (*head.split(" "),): re.compile(fill_pattern(pattern, english())) for head, pattern in table_lines("own_kinds")
}
# Additional weights for lasting information, keyed by kind. Kinds that stay true and useful for longer weigh more.
DURABLE = {INSTRUCTION: 0.7, OTHER: 0.8} | {kind: float(worth) for kind, worth in _PATTERNS}
_FROM_NOW = r"next time|from now on|in future|in the future"
_LEAD = rf"^(?:(?:please|{_FROM_NOW}|and|so|ok|okay),? )*"
_RULE = re.compile(
    rf"{_LEAD}(?:always|never|don't|do not|stop(?! by\b)|avoid|make sure|remember to|be sure to)\b", re.IGNORECASE
)
_REQUEST = re.compile(rf"{_LEAD}(?:{any_of('requests')})\b", re.IGNORECASE)
_PLEASE = re.compile(r"please \w+", re.IGNORECASE)
_ASKED = re.compile(rf"\b(?:please|{_FROM_NOW})\b", re.IGNORECASE)
_LASTING = re.compile(rf"\b(?:{_FROM_NOW}|whenever|each time|every time)\b", re.IGNORECASE)
# Words for the work of an assistant: "Don't use jargon" is an instruction to the assistant, but "Make sure yours stands
# out" is advice to a friend.
_ANSWERING = re.compile(
    r"\b(?:answers?|answering|repl(?:y|ies)|respon[ds]\w*|explain\w*|summari[sz]\w+|translat\w+|bullets?|sentences?"
    r"|paragraphs?|emojis?|markdown|code blocks?|jargon|metric|units|sources)\b",
    re.IGNORECASE,
)
# How all answers should be: "Keep answers short" is an instruction, but "Please explain photosynthesis" is a request.
_STYLED = re.compile(
    rf"{_LEAD}(?:(?:answer|be|explain|keep|reply|respond|use|write)\b.*\b(?:{any_of('styles')})\b"
    r"|(?:answer|explain|reply|respond|write)\b.* (?-i:in [A-Z]\w+)[.!]?$)",
    re.IGNORECASE,
)
# A request for a single text: "Write a short poem", "Reply to Anna in English".
_SINGLE = re.compile(
    rf"{_LEAD}(?:(?:answer|explain|write)(?: me)? (?:an?|the|this|that|these)|(?:explain|write) (?:my|our)"
    r"|(?:reply|respond) to (?!me\b|my\b|all\b))\b",
    re.IGNORECASE,
)
# "Our planet is our future" says nothing about the speaker.
_EVERYBODYS = re.compile(
    r"\bour(?: \w+)? (?:earth|environment|future|generations?|humanity|planet|society|species|world)\b", re.IGNORECASE
)
_OWN = re.compile(r"\b(?:I|me|my|mine|myself|we)\b(?!\.)", re.IGNORECASE)


@dataclass(frozen=True)
class Speaker:
    name: str  # if the name is unknown: "User", "Assistant" or the name of the tool
    is_named: bool  # whether the name is known from the application or the transcript


USER, ASSISTANT = Speaker("User", is_named=False), Speaker("Assistant", is_named=False)
# Words for the roles, which are not names of speakers: "Assistant: Let the rug dry."
ROLE_LABELS = {
    "user": {*"user human nutzer nutzerin usuario usuaria utilisateur utilisatrice пользователь 用户".split()},
    "assistant": {*"assistant ai bot chatbot assistent asistente ассистент 助手".split()},
}


@dataclass(frozen=True)
class Sentence:
    """A verbatim sentence, and the data by which it is chosen."""

    turn: Turn
    position: int  # index of the sentence in its turn
    text: str
    core: str  # the text without leading interjections and forms of address; used for analysis, never shown
    terms: frozenset[str]  # its content words
    speaker: Speaker
    language: str  # language of its turn

    @cached_property
    def quote(self) -> str:
        """The sentence as a memory: the speaker, the verbatim text, and the dates of relative times in brackets."""
        said = with_dates(self.text, self.turn.created_at.date())
        return said if self.turn.role == "tool" else f"{self.speaker.name}: {said}"

    @cached_property
    def length(self) -> int:
        return len(self.quote.split())

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        return kinds_of(self.core, self.language)

    @property
    def is_about_speaker(self) -> bool:
        return is_about_speaker(self.core, self.language)

    @property
    def is_by_person(self) -> bool:
        return self.turn.role == "user" or (self.turn.role == "assistant" and self.speaker.is_named)

    @property
    def is_question(self) -> bool:
        return is_question(self.text)

    @cached_property
    def is_statement(self) -> bool:
        """True if it is long enough, is mostly letters or sets an attribute, and is not a question or a reaction."""
        if self.is_question or self.is_reaction or not self._is_long_enough:
            return False
        letters = sum(character.isalpha() or character.isspace() for character in self.text)
        return letters >= MIN_LETTERS * len(self.text) or bool(self.attribute)

    @property
    def is_reaction(self) -> bool:
        """True if it is a reaction, a request, a platitude or small talk. Always false in other languages."""
        if self.language != ENGLISH or self.attribute or INSTRUCTION in self.kinds:
            return False
        if is_reaction(self.core):
            return not (is_own(self.core) and (self.kinds or is_particular(self.core)))
        return (is_request(self.core) and not self.kinds) or is_about_nobody(self.core)

    @property
    def _is_long_enough(self) -> bool:
        if is_wide(self.text):
            return len(self.text) >= (MIN_LASTING if self.is_lasting else MIN_CHARACTERS)
        if self.language == ENGLISH or self.is_lasting:
            least = 1 if self.is_lasting or has_relative_time(self.text) else 2
            return len(self.core.split()) >= (2 if self.attribute else MIN_WORDS) and len(self.terms) >= least
        return len(self.text.split()) >= MIN_WORDS_OTHER_LANGUAGES and len(self.terms) >= MIN_WORDS

    @property
    def is_lasting(self) -> bool:
        """True if it has lasting information about its speaker."""
        return bool(self.kinds or self.attribute)

    @cached_property
    def attribute(self) -> str:
        """The attribute that the sentence sets for its speaker, such as `home`. Usually blank."""
        found = statement_of(f"{self.speaker.name}: {self.core}")
        return found.attribute if found and found.subject == self.speaker.name else ""

    @cached_property
    def can_be_kept(self) -> bool:
        """True if it is a statement that is clear without context and that its speaker presents as true."""
        return self.is_statement and not needs_context(self.core, self.language) and not is_not_asserted(self.text)

    @cached_property
    def worth(self) -> float:
        """The factor for the weights of its words. It depends on its speaker, durability and specificity."""
        durable = 1 + sum(DURABLE[kind] for kind in self.kinds[:2])
        own = 1.3 if self.is_about_speaker else 0.7 if self.speaker.is_named else 1.0
        particular = DATED if has_relative_time(self.text) else PARTICULAR if _PARTICULAR.search(self.text) else 1.0
        return durable * own * particular * (1.0 if self.speaker.is_named else ROLE_WEIGHT[self.turn.role])


@dataclass(frozen=True)
class Window:
    """A window of turns with the data derived from them."""

    turns: Sequence[Turn]  # the turns, oldest first
    speech: list[tuple[Speaker, str]]  # the speaker and the text of each turn
    languages: list[str]  # the language of each turn
    vocabulary: list[list[str]]  # the content words of each turn
    weights: dict[str, float]  # the weights of words; rare words have high weights

    @cached_property
    def called(self) -> frozenset[str]:
        """Names by which the speakers may call each other."""
        return nicknames(speaker.name for speaker, _text in self.speech if speaker.is_named)

    @cached_property
    def by_turn(self) -> list[list[Sentence]]:
        return [self._sentences_of(position) for position in range(len(self.turns))]

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for group in self.by_turn for sentence in group]

    def _sentences_of(self, position: int) -> list[Sentence]:
        turn, (speaker, text), language = self.turns[position], self.speech[position], self.languages[position]
        found = (quote for sentence in sentences(text) for quote in quotes_of(sentence))
        return [
            Sentence(turn, position, said, core, frozenset(content_words(core, language)), speaker, language)
            for position, said in enumerate(found)
            if (core := without_openers(said.replace("’", "'"), self.called) if language == ENGLISH else said)
        ]


def quotes_of(sentence: str) -> list[str]:
    """Split a sentence into parts that set different attributes, because the values can end at different times.

    "My name is Nora, I live in Oslo" sets a name and a home. If a part has no subject, the previous subject is
    repeated: "I live in Oslo.", "I … work as a nurse."
    """
    is_quoted = in_quotation(sentence)
    cuts = [0, *(cut.start() for cut in _PIECE.finditer(sentence) if not is_quoted(cut.start())), len(sentence)]
    pieces = [sentence[start:end] for start, end in pairwise(cuts)]
    if not 1 < len(pieces) <= MAX_PIECES:
        return [sentence]
    parts, subject = [""], ""
    for piece in pieces:
        subject = found[0] if (found := _SUBJECT.search(piece)) else subject
        own = piece if found or not subject else f"{subject} … {_JOINT.sub('', piece)}"
        attribute = _attribute(own)
        if attribute and _attribute(parts[-1]) not in ("", attribute):
            parts.append(own)
        else:
            parts[-1] += piece
    if len(parts) == 1:
        return [sentence]
    end = sentence[-1] if sentence[-1] in _ENDS else ""
    return [_LOOSE_END.sub("", _JOINT.sub("", part)).removesuffix(end) + end for part in parts]


def _attribute(text: str) -> str:
    found = statement_of(text.strip())
    return found.attribute if found and found.subject == "User" else ""


def read_window(turns: Sequence[Turn]) -> Window:
    speech = _by_speaker(turns)
    languages = [language_of(text[:VOCABULARY_CHARS]) for _, text in speech]
    vocabulary = [
        content_words(text[:VOCABULARY_CHARS], language) for (_, text), language in zip(speech, languages, strict=True)
    ]
    return Window(turns, speech, languages, vocabulary, _weights(vocabulary))


def _by_speaker(turns: Sequence[Turn]) -> list[tuple[Speaker, str]]:
    """Return the speaker and the text of each turn. If most turns start with a name, these names are the speakers."""
    matches = [None if turn.name or turn.role == "tool" else _SPEAKER.match(turn.content) for turn in turns]
    named = sum(map(bool, matches)) > len(turns) / 2
    return [
        (_of_label(match[1], turn), turn.content[match.end() :]) if match and named else (_of_role(turn), turn.content)
        for turn, match in zip(turns, matches, strict=True)
    ]


def _of_label(label: str, turn: Turn) -> Speaker:
    is_role = label.casefold() in ROLE_LABELS.get(turn.role, ())
    return _of_role(turn) if is_role else Speaker(label, is_named=True)


def _of_role(turn: Turn) -> Speaker:
    if turn.name:
        return Speaker(turn.name, is_named=True)
    return {"user": USER, "assistant": ASSISTANT}.get(turn.role) or Speaker(turn.tool_name or "Tool", is_named=False)


def _weights(vocabulary: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the smoothed inverse document frequency of each word, with turns as documents."""
    count = len(vocabulary)
    frequency = Counter(word for turn in vocabulary for word in set(turn))
    return {
        word: (math.log((1 + count) / (1 + n)) + 1) * (1.5 if word[0].isdigit() else 1.0)
        for word, n in frequency.items()
    }


def most_informative(own: Sequence[Sentence], weights: dict[str, float], left: int) -> list[Sentence]:
    """Choose the sentences with the most new information for their length, and return them in order.

    The sentences have at most `left` words in total. The choice is greedy, with budgeted coverage as in Lin & Bilmes
    2011 (https://aclanthology.org/P11-1052): the gain of a sentence is the weight of its words that are in no chosen
    sentence. Gains never grow, so the last computed gain of a sentence is an upper bound. Only the gain of the sentence
    with the highest bound has to be computed again (Minoux 1978, https://doi.org/10.1007/BFb0006528).
    """
    covered: set[str] = set()
    chosen: list[int] = []
    waiting = [(-gain(sentence, covered, weights), n) for n, sentence in enumerate(own)]
    heapify(waiting)
    while waiting and left > 0:
        bound, best = heappop(waiting)
        now = -gain(own[best], covered, weights)
        cost = len(own[best].text.split()) + 1
        if bound < now < 0:
            heappush(waiting, (now, best))
        elif now < 0 and cost <= left:
            chosen.append(best)
            covered |= own[best].terms
            left -= cost
    return [own[n] for n in sorted(chosen)]


def gain(sentence: Sentence, covered: Set[str], weights: dict[str, float]) -> float:
    """Return the new information in a sentence, relative to its length."""
    # `fsum` is exact, so the sum doesn't depend on the order of the set, and never grows when words are removed.
    new = math.fsum(weights.get(term, 0.0) for term in sentence.terms - covered)
    return new * sentence.worth / (len(sentence.text.split()) + MIN_WORDS)


def information(sentence: Sentence, weights: dict[str, float]) -> float:
    """Return the information in a single sentence. It grows less than proportionally to the length."""
    said = math.fsum(weights.get(term, 0.0) for term in sentence.terms)
    alone = 1.0 if sentence.can_be_kept else VAGUE
    return said * alone * sentence.worth / math.pow(len(sentence.text.split()) + MIN_WORDS, 0.75)


def join_under_dates(chosen: Iterable[Sentence]) -> str:
    """Return the sentences. Start a new line where the speaker or the date changes. Add the date where it changes."""
    lines: list[str] = []
    date = ""
    for (day, _), said in groupby(chosen, key=lambda one: (f"[{one.turn.created_at:%Y-%m-%d}] ", one.speaker)):
        lines.append(("" if day == date else day) + join_with_speakers(said))
        date = day
    return "\n".join(lines)[:6_000]


def join_with_speakers(chosen: Iterable[Sentence]) -> str:
    """Return the sentences, with the speaker only where it changes."""
    said, speaker = [], None
    for one in chosen:
        said.append(one.quote.removeprefix(f"{one.speaker.name}: ") if one.speaker == speaker else one.quote)
        speaker = one.speaker
    return " ".join(said)


def excerpt(turn: Turn) -> str:
    """Return the beginning of a turn, as a substitute for a summary if the turns have no sentences."""
    return " ".join(turn.content[:200].split()) or "Turns without text."


# --- small talk, sentences that need context, and information about the speaker ---


def without_openers(sentence: str, called: frozenset[str]) -> str:
    """Return an English sentence without leading interjections and without the name of the person addressed.

    Args:
        called: Names by which the speakers call each other.
    """
    opener, closer = _patterns(called)
    left = closer.sub(r"\1", sentence.strip())
    while left and (match := opener.match(left)):
        left = left[match.end() :]
    return left[:1].upper() + left[1:]


def is_reaction(sentence: str) -> bool:
    return bool(_REACTION.match(sentence))


def is_own(text: str) -> bool:
    """Return whether a sentence is about its speaker, or names somebody, and doesn't address the listener."""
    return bool(_SPEAKER_ALONE.search(text) or _CALLED.search(text)) and not _LISTENER.search(text)


def is_particular(text: str) -> bool:
    """Return whether a sentence has a number or a name. Feelings don't count: "I'm sorry about Max"."""
    return bool(_PARTICULAR.search(text)) and not text.startswith("I'm ")


def is_about_nobody(text: str) -> bool:
    """Return whether a sentence is only about the listener, or about life in general.

    Return False if it has a number, a name or a relative time, or mentions a family member or an illness.
    """
    if _FIRST_PERSON.search(text) or _PARTICULAR.search(text) or worth_of(text) > LITTLE_WORTH:
        return False
    is_general = _LISTENER.search(text) or _PLATITUDE.match(text)
    return bool(is_general) and not _DIGIT.search(in_digits(text, [ENGLISH])) and not has_relative_time(text)


def nicknames(names: Iterable[str]) -> frozenset[str]:
    """Return names and their short forms: Mel for Melanie."""
    firsts = {name.split()[0] for name in names}
    return frozenset(first[:length] for first in firsts for length in range(_NICKNAME, len(first) + 1)) | firsts


@lru_cache(maxsize=64)
def _patterns(called: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern for interjections at the start, and a pattern for a name at the end."""
    names = "|".join(sorted(map(re.escape, called), key=len, reverse=True)) or r"(?!)"
    word = rf"(?:{_GREETED}|(?i:{any_of('openers')})|{names})"
    end = r"(?:\s*[,.!?…:;]+|\s*[-–—]+(?=\s)|\s*$)\s*"
    opener = re.compile(rf"(?:{word}[ ,]+){{0,{_OPENERS}}}{word}{end}|(?i:and|but|plus|also)\s+")
    return opener, re.compile(rf",?\s+(?:{names})([.!?…]*)$")


def needs_context(text: str, language: str) -> bool:
    """Return whether a sentence, without its leading interjections, is unclear without the previous sentence."""
    if any_pattern("leaning", language).search(text) or _PART.search(text) or _has_unpaired_mark(text):
        return True
    if language != ENGLISH:
        return False
    pronoun = _PRONOUN.search(text)
    return pronoun is not None and not _NAMED.search(text[: pronoun.start()])


def _has_unpaired_mark(text: str) -> bool:
    return any(sum(map(text.count, marks)) % 2 for marks in ('"', "“”„", "«»", "「」", "『』"))


def is_about_speaker(text: str, language: str) -> bool:
    """Return whether the start of a sentence is about its speaker."""
    if language != ENGLISH:
        own = table_words("first_person", language)
        return not set(own).isdisjoint(_without_elisions(text)) or text.startswith(_OWN_RELATIVES.get(language, ()))
    is_everybodys = _EVERYBODYS.search(text) and not _OWN.search(text)
    return bool(_FIRST_PERSON.search(text[:START_CHARS])) and not is_everybodys and not _OF_LISTENER.match(text)


def is_instruction(text: str) -> bool:
    """Return whether a sentence tells the assistant how to answer from now on.

    Remarks such as "Never saw that", advice to a friend and requests for a single text are not instructions.
    """
    if _RULE.match(text):
        return bool(_ANSWERING.search(text) or _ASKED.search(text))
    if _LASTING.search(text):
        return bool(_REQUEST.match(text) or _PLEASE.match(text))
    return bool(_STYLED.match(text)) and not _SINGLE.match(text)


def is_request(text: str) -> bool:
    """Return whether a sentence asks for something, but is not an instruction on how to answer."""
    return bool(_RULE.match(text) or _REQUEST.match(text)) and not is_instruction(text)


def kinds_of(text: str, language: str) -> tuple[str, ...]:
    """Return the kinds of lasting information that a sentence has about its speaker, most durable first."""
    if language != ENGLISH:
        return (OTHER,) if is_about_speaker(text, language) and _has_lasting_word(text, language) else ()
    if is_instruction(text):
        return (INSTRUCTION,)
    if not is_about_speaker(text, language) and not _CALLED.search(text):
        return ()
    return tuple(kind for (kind, _), pattern in _PATTERNS.items() if pattern.search(text))


def _has_lasting_word(text: str, language: str) -> bool:
    if is_wide(text):
        return any(word in text for word in table_words("lasting", language))
    return any(word.startswith(table_words("lasting", language)) for word in _without_elisions(text))


def _without_elisions(text: str) -> list[str]:
    """Return the words of a text in a language other than English. French "j'aime" has two."""
    return words(text.replace("’", "'").replace("'", " "))
