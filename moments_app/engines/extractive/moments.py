"""Divide a window into moments by pauses and vocabulary. Give each moment central sentences and key phrases.

TextTiling (Hearst 1997, https://aclanthology.org/J97-1003) compares the words before and after a gap between turns. A
gap may be a boundary if the similarity there is much lower than around it (a deep valley). A pause that is much longer
than usual is always a boundary.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from statistics import mean, median, pstdev

from moments_app.engines import times
from moments_app.engines.calls.moments import DraftMoment, MomentAnswer, MomentRequest
from moments_app.engines.extractive.language import (
    ENGLISH,
    LETTERS,
    UNKNOWN,
    ignored_words,
    stem,
    words,
)
from moments_app.engines.extractive.sentences import (
    Sentence,
    Window,
    excerpt,
    information,
    join_under_dates,
    join_with_speakers,
    most_informative,
    read_window,
)
from moments_app.engines.transcript import Turn
from moments_app.engines.words import any_of, word_set

SUMMARY_SENTENCES = 3
SUMMARY_MAX = 320  # maximum characters of a summary
DETAIL_WORDS = 280  # maximum words of the detail; less than 300, because dates are added
# share of the segment's words in the detail; a lower share would lose facts, a higher one would repeat the transcript
DETAIL_SHARE = 0.5
TAGS = 6
NAME_MAX = 60  # maximum characters of a moment's name
_WORDS = re.compile(r"[^\W_]+")
_NAME = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir) (?:\w+ )?(?:{any_of('kin', 'pets')}),? "
    r"([A-Z][a-zà-öø-ÿ]+(?:-[A-Z][a-zà-öø-ÿ]+)?)\b|\b(?:named|called|name is|name's) ([A-Z][a-zà-öø-ÿ]{2,})\b"
)
_CAPITALIZED = re.compile(
    r"(?<=[a-zà-öø-ÿ,;] )([A-Z][a-zà-öø-ÿ]{2,})(?='s\b| (?:said|says|told|asked|wants|thinks|called)\b)"
)
_NO_NAMES = times.calendar_names().union(
    "Just Not Very Really So Still Going Glad Sorry Happy Good Fine Sure Here There That What Where Who How Let".split()
)
FEELINGS = (
    "joy excitement gratitude pride relief hope worry frustration anger sadness disappointment exhaustion surprise"
).split()
MAX_FEELINGS = 4
_BEFORE = 4  # maximum words between a negation and a feeling
_PATTERNS = {name: re.compile(rf"\b(?:{any_of(name)})\b", re.IGNORECASE) for name in FEELINGS}
_DENIED = re.compile(rf"\b(?:{any_of('negations')})\b(?:\W+\w+){{0,{_BEFORE}}}\W*$", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Ww]e|[Uu]s)\b|^(?:so|feeling|really|super|very|just)\b", re.IGNORECASE)
BLOCK = 6  # number of turns to compare on each side of a gap
MIN_SEGMENT = 10  # minimum turns of a segment, unless pauses separate it
MAX_SEGMENT = 40
MAX_SEGMENTS = 200  # maximum segments of a window; an answer can't have more moments
MIN_PAUSE = 1_800.0  # minimum seconds of a pause
PAUSE_FACTOR = 10  # minimum length of a pause, as a multiple of the median gap
MIN_SITTING = 3  # minimum turns between two pauses; fewer turns become part of the adjacent range

# Key phrases: recurring runs of words between stop words. In scripts without spaces, a phrase is a run of two to four
# characters that occurs in several turns.
PHRASE_WORDS = 2  # maximum words of a phrase
WORD_MIN = 3  # minimum letters of a word
WIDE_LENGTHS = (4, 3, 2)  # possible lengths of a phrase in a script without spaces, in characters
PHRASE_MAX = 60  # maximum characters of a phrase
FREQUENCY_EXPONENT = 0.8  # exponent of the number of sentences with a phrase, for the phrase's score
SEVERAL_SPEAKERS = 1.5  # factor for a phrase that more than one speaker uses
_TOKEN = re.compile(rf"{LETTERS}(?:['’-]{LETTERS})*|\d[\w.,:/-]*|[^\w\s]")
_ASIDE = re.compile(r"\[[^\[\]]{1,300}\]")  # "[shares a photo of a street]" is not a topic
_WIDE_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
_KATAKANA = re.compile(r"[\u30a0-\u30ff]{2,}")
# Characters that separate phrases in Chinese and Japanese, because they may occur in any sentence.
_WIDE_STOPS = re.compile(
    "[的了是我你您他她它们在有和就不也都这那吗呢吧啊呀嘛哦很会要去来到说想能可把被给让对从跟与或但而且因为所以如果还没好多少些个一两几"
    "什么怎样谁哪里上下着沿过得以为中后前起时候现在今天昨天明天年月日号点分钟\u3040-\u309f]+|[。！？，、；：]"
)

Phrase = tuple[str, ...]  # the stems of the phrase's words


def build_moments(request: MomentRequest) -> MomentAnswer:
    window = read_window(request.turns)
    moments: list[DraftMoment] = []
    names = {moment.name for moment in request.journey.moments}
    for part in segment(request.turns, window.vocabulary):
        moment = _moment(window, part, names)
        names.add(moment.name)
        moments.append(moment)
    return MomentAnswer(moments=moments)


def _moment(window: Window, part: range, taken: set[str]) -> DraftMoment:
    own = [sentence for position in part for sentence in window.by_turn[position]]
    spoken = [sentence for sentence in own if sentence.turn.role != "tool"] or own
    persons = persons_in(own)
    phrases = count_phrases(spoken, [*window.called, *persons])
    tags = _tags(window, phrases)
    summary = join_with_speakers(_most_central(spoken, window.weights)) or excerpt(window.turns[part.start])
    told = summary.casefold()
    return DraftMoment(
        name=_name(sorted(tags, key=lambda tag: tag not in told), window.turns[part.start], taken),
        summary=summary,
        detail=_detail(own, window.weights),
        topic_tags=tags,
        emotion_tags=_feelings(spoken),
        present_persons=persons,
        starts_at_message_idx=window.turns[part.start].index,
        ends_at_message_idx=window.turns[part.stop - 1].index,
    )


def _tags(window: Window, phrases: "PhraseCounts") -> list[str]:
    """Return the best phrases that occur in several turns. If there are fewer than three, add others."""
    recurring = phrases.best(window.weights, TAGS, least=2)
    if len(recurring) >= 3:
        return recurring
    return list(dict.fromkeys([*recurring, *phrases.best(window.weights, TAGS // 2)]))[:TAGS]


def _name(tags: Sequence[str], turn: Turn, taken: set[str]) -> str:
    """Return a unique name, built from the first tags or, if necessary, the date of the first turn."""
    names = ["-".join(_WORDS.findall(" ".join(some)))[:NAME_MAX] for some in (tags[:2], tags[:3], tags[1:3]) if some]
    dated = f"{names[0] if names else 'conversation'}-{turn.created_at:%Y-%m-%d}"
    candidates = [*names, dated, *(f"{dated}-{number}" for number in range(2, 202))]
    return next((name for name in candidates if name not in taken), dated)


def _most_central(own: Sequence[Sentence], weights: dict[str, float]) -> list[Sentence]:
    """Return the most informative statements. If there are none, return the user's sentences, or else any sentences."""
    stated = [one for one in own if one.is_statement]
    asked = [one for one in own if one.turn.role == "user" and one.terms]
    return _top(stated, weights) or _top(asked, weights) or _top(own, weights)


def _top(own: Sequence[Sentence], weights: dict[str, float]) -> list[Sentence]:
    ranked = sorted(range(len(own)), key=lambda n: (-information(own[n], weights), n))
    chosen: list[int] = []
    length = 0
    for n in ranked:
        size = len(own[n].quote) + 1
        alike = any(len(own[n].terms & own[m].terms) > len(own[n].terms) / 2 for m in chosen)
        if own[n].terms and not alike and length + size <= SUMMARY_MAX:
            chosen.append(n)
            length += size
        if len(chosen) == SUMMARY_SENTENCES:
            break
    return [own[n] for n in sorted(chosen)]


def _detail(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """Return the most informative statements with their dates, at most about half of all words."""
    words_said = sum(len(sentence.text.split()) for sentence in own)
    stated = [sentence for sentence in own if sentence.is_statement] or own
    return join_under_dates(most_informative(stated, weights, min(DETAIL_WORDS, 20 + round(DETAIL_SHARE * words_said))))


def _feelings(spoken: Sequence[Sentence]) -> list[str]:
    own = [one for one in spoken if one.turn.role == "user" and one.language == ENGLISH and not one.is_question]
    return feelings(one.text for one in own)


# --- people and feelings ---


def persons_in(own: Iterable[Sentence]) -> list[str]:
    """Return the named speakers, and the people who are mentioned by name."""
    counts = Counter[str]()
    for sentence in own:
        if sentence.speaker.is_named:
            counts[sentence.speaker.name] += 1
        names = [name for match in _NAME.findall(sentence.text) for name in match if name]
        counts.update(name for name in names + _CAPITALIZED.findall(sentence.text) if name not in _NO_NAMES)
    return [name for name, _ in counts.most_common(12)]


def feelings(sentences: Iterable[str]) -> list[str]:
    """Return the feelings that the speakers say they have, most frequent first. Negated feelings don't count."""
    counts = Counter(name for sentence in sentences if _OWN.search(sentence) for name in _named(sentence))
    return [name for name, _count in counts.most_common(MAX_FEELINGS)]


def _named(sentence: str) -> list[str]:
    found = ((name, pattern.search(sentence)) for name, pattern in _PATTERNS.items())
    return [name for name, match in found if match and not _is_denied(sentence, match.start())]


def _is_denied(sentence: str, start: int) -> bool:
    clause = re.split(r"[,;:.!?–—]|\bbut\b", sentence[:start])[-1]
    # "Can't wait" and "can't believe" are not negations of a feeling.
    return bool(_DENIED.search(clause))


# --- segments ---


def segment(turns: Sequence[Turn], vocabulary: Sequence[Sequence[str]]) -> list[range]:
    """Divide a window into consecutive ranges of positions. Only the first range may start with a tool result.

    Args:
        turns: The window, with at least one turn.
        vocabulary: The content words of each turn.
    """
    starts = [0]
    for sitting in _sittings(turns):
        starts += [sitting.start] if sitting.start else []
        starts += _topic_starts(sitting, turns, vocabulary)
    starts = _longest_pauses(starts, turns)
    ends = [*starts[1:], len(turns)]
    return [range(start, end) for start, end in zip(starts, ends, strict=True)]


def _longest_pauses(starts: list[int], turns: Sequence[Turn]) -> list[int]:
    """Return the starts of segments. If there are more than `MAX_SEGMENTS`, keep those after the longest pauses."""
    if len(starts) <= MAX_SEGMENTS:
        return starts
    ranked = sorted(starts[1:], key=lambda n: turns[n - 1].created_at - turns[n].created_at)
    return [0, *sorted(ranked[: MAX_SEGMENTS - 1])]


def _sittings(turns: Sequence[Turn]) -> list[range]:
    gaps = [(after.created_at - before.created_at).total_seconds() for before, after in pairwise(turns)]
    pause = max(MIN_PAUSE, median(gaps or [0.0]) * PAUSE_FACTOR)
    starts = [0]
    for position, gap in enumerate(gaps, 1):
        if gap >= pause and turns[position].role != "tool" and position - starts[-1] >= MIN_SITTING:
            starts.append(position)
    if len(starts) > 1 and len(turns) - starts[-1] < MIN_SITTING:
        starts.pop()
    return [range(start, end) for start, end in zip(starts, [*starts[1:], len(turns)], strict=True)]


def _topic_starts(sitting: range, turns: Sequence[Turn], vocabulary: Sequence[Sequence[str]]) -> list[int]:
    """Return the starts of topics between two pauses: the deepest valleys, with a minimum distance between them."""
    candidates = [n for n in sitting[MIN_SEGMENT : -MIN_SEGMENT + 1 or None] if turns[n].role == "user"]
    depths = _depths([_similarity(vocabulary, n, sitting) for n in sitting[1:]])
    depth = {n: depths[n - sitting.start - 1] for n in candidates}
    if not depth:
        return []
    # Hearst's stricter cutoff: valleys one standard deviation deeper than the mean.
    cut = mean(depth.values()) + pstdev(depth.values())
    chosen: list[int] = []
    for n in sorted(depth, key=lambda n: (-depth[n], n)):
        before = max((start for start in chosen if start < n), default=sitting.start)
        after = min((start for start in chosen if start > n), default=sitting.stop)
        size = after - before
        apart = n - before >= MIN_SEGMENT and after - n >= MIN_SEGMENT
        if apart and (size > MAX_SEGMENT or (depth[n] > cut and depth[n] > 0 and size >= 2 * MIN_SEGMENT)):
            chosen.append(n)
    return sorted(chosen)


def _similarity(vocabulary: Sequence[Sequence[str]], gap: int, sitting: range) -> float:
    """Return the cosine similarity of the words in the blocks before and after a gap, from 0 to 1."""
    before = _counts(vocabulary[max(sitting.start, gap - BLOCK) : gap])
    after = _counts(vocabulary[gap : min(sitting.stop, gap + BLOCK)])
    norm = math.sqrt(sum(n * n for n in before.values()) * sum(n * n for n in after.values()))
    return sum(count * after[word] for word, count in before.items()) / norm if norm else 0.0


def _counts(block: Sequence[Sequence[str]]) -> Counter[str]:
    # Prevent a long turn from outweighing its neighbors.
    return Counter(word for turn in block for word in turn[:200])


def _depths(similarity: Sequence[float]) -> list[float]:
    """Return the depth of each gap: the sum of its distances below the nearest peaks before and after it."""
    before, after = _peaks(similarity), _peaks(similarity[::-1])[::-1]
    return [(left - own) + (right - own) for left, own, right in zip(before, similarity, after, strict=True)]


def _peaks(similarity: Sequence[float]) -> list[float]:
    """Return, for each gap, the similarity at the nearest peak before it, or its own similarity if it is a peak."""
    peaks: list[float] = []
    for n, own in enumerate(similarity):
        peaks.append(peaks[-1] if n and similarity[n - 1] >= own else own)
    return peaks


# --- key phrases ---


@lru_cache(maxsize=5_000)
def phrases_of(text: str, language: str) -> tuple[str, ...]:
    """Return the lower-case phrases of a sentence in order, or no phrases if the language is unknown."""
    if wide := _WIDE_RUN.findall(text):
        return tuple(dict.fromkeys(part for run in wide for part in _wide_phrases(run)))
    if language == UNKNOWN:
        return ()
    return tuple(" ".join(run[-PHRASE_WORDS:])[:PHRASE_MAX] for run in _runs(text, language))


def _wide_phrases(run: str) -> Iterator[str]:
    for part in filter(None, _WIDE_STOPS.split(run)):
        if _KATAKANA.fullmatch(part):
            yield part
            continue
        for length in WIDE_LENGTHS:
            yield from (part[start : start + length] for start in range(len(part) - length + 1))


@cache
def _general_words(language: str) -> frozenset[str]:
    return ignored_words(language) | (word_set("general words") if language == ENGLISH else frozenset())


def _runs(text: str, language: str) -> Iterator[list[str]]:
    """Yield the runs of words between stop words, numbers and punctuation."""
    ignored = _general_words(language)
    run: list[str] = []
    before = ""
    for token in [*_TOKEN.findall(text), ""]:
        word = token.lower().replace("’", "'").removesuffix("'s")
        is_named = len(word) >= WORD_MIN and word[0].isalpha() and word not in ignored
        # A word after a number is not a topic.
        if is_named and not word.endswith(("ly", "n't")) and not before.isdigit():
            run.append(word)
        elif run:
            yield run
            run = []
        before = token


def _stems(phrase: str) -> Phrase:
    return tuple(map(stem, phrase.split(" ")))


class PhraseCounts:
    """Counts the sentences that contain each phrase, including parts of longer phrases.

    Args:
        without: Stems that phrases must not contain, for example the names of the speakers.
    """

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self._without = without
        self._sentences: dict[Phrase, list[Sentence]] = defaultdict(list)
        self._said: dict[Phrase, str] = {}

    def add(self, sentence: Sentence) -> None:
        own: dict[Phrase, str] = {}
        for phrase in phrases_of(_ASIDE.sub(". ", sentence.core), sentence.language):
            said = phrase.split(" ")
            for start in range(len(said)):
                for end in range(start + 1, len(said) + 1):
                    part = " ".join(said[start:end])
                    if self._without.isdisjoint(_stems(part)):
                        own.setdefault(_stems(part), part)
        for stems, text in own.items():
            self._said.setdefault(stems, text)
            self._sentences[stems].append(sentence)

    def best(self, weights: Mapping[str, float], count: int, least: int = 1) -> list[str]:
        """Return the best phrases that occur in at least `least` turns. No two share a word or a run of characters.

        If phrases are equally good, those in statements come first, then the earlier ones.
        """
        ranked = sorted(
            self._sentences, key=lambda stems: (-self._worth(stems, weights), self._is_only_in_questions(stems))
        )
        chosen: list[Phrase] = []
        for stems in ranked:
            if len(chosen) == count:
                break
            turns = {one.turn.index for one in self._sentences[stems]}
            if len(turns) >= least and not any(_overlap(stems, other) for other in chosen):
                chosen.append(stems)
        return [self._said[stems] for stems in chosen]

    def _is_only_in_questions(self, stems: Phrase) -> bool:
        return all(one.is_question for one in self._sentences[stems])

    def _worth(self, stems: Phrase, weights: Mapping[str, float]) -> float:
        """Return the score of a phrase. It increases with frequency, rarity, length, and the number of speakers."""
        is_wide = bool(_WIDE_RUN.match(stems[0]))
        rarity = math.sqrt(len(stems[0])) if is_wide else sum(weights.get(stem, 1.0) for stem in stems)
        speakers = {one.speaker.name for one in self._sentences[stems]}
        return (
            math.pow(len(self._sentences[stems]), FREQUENCY_EXPONENT)
            * rarity
            * (SEVERAL_SPEAKERS if len(speakers) > 1 else 1.0)
        )


def _overlap(one: Phrase, other: Phrase) -> bool:
    if _WIDE_RUN.match(one[0]) and _WIDE_RUN.match(other[0]):
        return any(one[0][start : start + 2] in other[0] for start in range(len(one[0]) - 1))
    return not set(one).isdisjoint(other)


def count_phrases(sentences: Iterable[Sentence], names: Iterable[str]) -> PhraseCounts:
    said = [one for one in sentences if one.turn.role != "tool" and _is_about_something(one)]
    of_people = {one.language for one in said if one.is_by_person}
    said = [one for one in said if one.language in of_people] or said  # an assistant may answer in another language
    # In other languages, small talk is not recognized, so prefer sentences with lasting information.
    said = [one for one in said if one.kinds or one.language == ENGLISH] or said
    found = PhraseCounts(frozenset(stem(word) for name in names for word in words(name)))
    for one in said:
        found.add(one)
    return found


def _is_about_something(sentence: Sentence) -> bool:
    # A question may be small talk, which is recognized in English only.
    return sentence.is_statement or (sentence.is_question and sentence.language == ENGLISH)
