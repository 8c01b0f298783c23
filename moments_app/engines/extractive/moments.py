"""Moments: a window divided by pauses and vocabulary, each part with summary, detail and tags."""

from collections.abc import Sequence

from moments_app.engines.calls.moments import DraftMoment, MomentAnswer, MomentRequest
from moments_app.engines.extractive.feelings import feelings
from moments_app.engines.extractive.journey import journey_text
from moments_app.engines.extractive.language import ENGLISH, words
from moments_app.engines.extractive.persons import persons_in
from moments_app.engines.extractive.phrases import Counted, Subject, stems_of, subjects
from moments_app.engines.extractive.profile import new_interests, profile_text
from moments_app.engines.extractive.segments import segment
from moments_app.engines.extractive.sentences import (
    Sentence,
    Window,
    dated,
    fallback,
    information,
    read,
    telling,
)
from moments_app.engines.extractive.topics import new_topics
from moments_app.engines.transcript import Turn

SUMMARY_SENTENCES = 3
SUMMARY_MAX = 420  # characters
DETAIL_WORDS = 280  # of the 300 that a detail may have; dates come on top
DETAIL_SHARE = 0.5  # of the segment's words: less would lose facts, more would be the transcript again
TAGS = 6
NAME_MAX = 60  # characters


def build_moments(request: MomentRequest) -> MomentAnswer:
    """Divide the window and write its moments; never fails."""
    window = read(request.turns)
    moments: list[DraftMoment] = []
    names = {moment.name for moment in request.journey.moments}
    for part in segment(request.turns, window.vocabulary):
        moment = _moment(window, part, names)
        names.add(moment.name)
        moments.append(moment)
    profile, sources = profile_text(request.profile, window)
    return MomentAnswer(
        moments=moments,
        user_summary_update=profile,
        line_sources=sources,
        new_interests=new_interests(request.profile, window),
        new_preferred_topics=new_topics(request.profile, request.journey.moments, window),
        recent_journey=journey_text(request, moments),
    )


def _moment(window: Window, part: range, taken: set[str]) -> DraftMoment:
    own = [sentence for position in part for sentence in window.by_turn[position]]
    spoken = [sentence for sentence in own if sentence.turn.role != "tool"] or own
    persons = persons_in(own)
    counted = _counted(window, part, persons)
    tags = _tags(window, counted)
    told = _telling_most(spoken, window.weights)
    found = sorted(map(_phrases, told), key=lambda phrases: -counted.worth_of(phrases, window.weights))
    return DraftMoment(
        name=_name(
            [counted.named_in(phrases, window.weights) for phrases in found], tags, window.turns[part.start], taken
        ),
        summary=" ".join(one.told for one in told) or fallback(window.turns[part.start]),
        detail=_detail(own, window.weights),
        topic_tags=tags,
        emotion_tags=_feelings(spoken),
        present_persons=persons,
        starts_at_message_idx=window.turns[part.start].index,
        ends_at_message_idx=window.turns[part.stop - 1].index,
    )


def _phrases(sentence: Sentence) -> list[Subject]:
    """Return what a sentence names, but for what it counts."""
    return [phrase for phrase in subjects(sentence.text, sentence.language) if not phrase.is_counted]


def _counted(window: Window, part: range, persons: Sequence[str]) -> Counted:
    """Return what the turns name, counted, but for persons."""
    counted = Counted(stems_of([*window.called, *persons], window.language))
    for position in part:
        if window.turns[position].role != "tool":
            said = (one for one in window.by_turn[position] if one.is_statement or one.is_question)
            counted.add((phrase for one in said for phrase in _phrases(one)), window.speech[position][0].name)
    return counted


def _tags(window: Window, counted: Counted) -> list[str]:
    """Return what several turns are about; where little is said again, also what one names in several words."""
    recurring = counted.best(window.weights, TAGS, least=2)
    if len(recurring) >= 3 or window.language != ENGLISH:
        return recurring
    return list(dict.fromkeys([*recurring, *counted.best(window.weights, TAGS // 2)]))[:TAGS]


def _name(named: Sequence[Sequence[str]], tags: Sequence[str], turn: Turn, taken: set[str]) -> str:
    """Return what a sentence of the summary names, the one that says most; else tags, or the day where all is taken.

    Args:
        named: two phrases of each sentence.
        tags: of the moment.
        turn: its first.
        taken: names of other moments.
    """
    parts = [*(_with(some, tags) for some in named), tags[:2], tags[:3], tags[1:3], tags[2:5]]
    names = ["-".join(words(" ".join(some)))[:NAME_MAX] for some in parts if some]
    dated = f"{names[0] if names else 'conversation'}-{turn.created_at:%Y-%m-%d}"
    candidates = [*names, dated, *(f"{dated}-{number}" for number in range(2, 202))]
    return next((name for name in candidates if name not in taken), dated)


def _with(named: Sequence[str], tags: Sequence[str]) -> Sequence[str]:
    """Return phrases that name a moment; with a tag where they are a single word, which would name many."""
    if len(words(" ".join(named))) != 1:
        return named
    return [*named, *[tag for tag in tags if tag != named[0]][:1]]


def _telling_most(own: Sequence[Sentence], weights: dict[str, float]) -> list[Sentence]:
    """Return the statements that say most, unlike each other, in order; without any, what was asked."""
    statements = [one for one in own if one.is_statement]
    asked = [one for one in own if one.turn.role == "user" and one.terms]
    return _of_most(statements, weights) or _of_most(asked, weights) or _of_most(own, weights)


def _of_most(own: Sequence[Sentence], weights: dict[str, float]) -> list[Sentence]:
    ranked = sorted(range(len(own)), key=lambda n: (-information(own[n], weights), n))
    chosen: list[int] = []
    length = 0
    for n in ranked:
        size = len(own[n].told) + 1
        alike = any(len(own[n].terms & own[m].terms) > len(own[n].terms) / 2 for m in chosen)
        if own[n].terms and not alike and length + size <= SUMMARY_MAX:
            chosen.append(n)
            length += size
        if len(chosen) == SUMMARY_SENTENCES:
            break
    return [own[n] for n in sorted(chosen)]


def _detail(own: Sequence[Sentence], weights: dict[str, float]) -> str:
    """Return what was stated in at most half the words of all, with its dates."""
    words_said = sum(len(sentence.text.split()) for sentence in own)
    stated = [sentence for sentence in own if sentence.is_statement] or own
    return dated(telling(stated, weights, min(DETAIL_WORDS, 20 + round(DETAIL_SHARE * words_said))))


def _feelings(spoken: Sequence[Sentence]) -> list[str]:
    own = [one for one in spoken if one.turn.role == "user" and one.language == ENGLISH and not one.is_question]
    return feelings(one.text for one in own)
