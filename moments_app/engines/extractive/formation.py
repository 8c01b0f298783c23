"""Memories: statements of the person about themselves as observations, and the most telling statements as facts."""

from collections.abc import Iterable, Sequence

from moments_app.engines.calls.formation import (
    DraftAtom,
    DraftAtoms,
    FormationAnswer,
    FormationRequest,
    Limits,
    StreamSection,
)
from moments_app.engines.extractive.language import ENGLISH, content_words
from moments_app.engines.extractive.sentences import Sentence, Window, information, read, says

KNOWN = 0.7  # of a statement's words that something known has
SHARED = 2  # words that a sentence has of a shard's prompt
PERSON, SESSION = "user", "session"  # labels of the streams that are nobody else's


def form_memories(request: FormationRequest) -> FormationAnswer:
    """Choose for each stream among the statements of its turns; results of tools are left out."""
    window = read(request.turns)
    statements = [one for one in window.sentences if one.turn.role != "tool" and one.is_statement and not one.is_vague]
    ranked = sorted(statements, key=lambda one: -information(one, window.weights))
    observed = _observed_of_person(request.sections, ranked, window)
    entries = [_entry(section, ranked, window, observed) for section in request.sections]
    return FormationAnswer(streams=[entry.model_dump() for entry in entries])


def is_observation(sentence: Sentence) -> bool:
    """Tell whether the person says something of themselves that will be true for a while."""
    if sentence.turn.role != "user" or not sentence.is_statement or sentence.is_vague:
        return False
    return bool(sentence.kinds) if sentence.language == ENGLISH else sentence.is_of_speaker


def _observed_of_person(
    sections: Sequence[StreamSection], ranked: Sequence[Sentence], window: Window
) -> Sequence[Sentence]:
    """Return what the person's stream takes in: the session needn't take the same as a fact."""
    return next((_observations(section, ranked, window) for section in sections if section.label == PERSON), [])


def _entry(
    section: StreamSection, ranked: Sequence[Sentence], window: Window, observed: Sequence[Sentence]
) -> DraftAtoms:
    """Return what one stream gets. It takes a text once, so that what it gets as an observation is no fact of it."""
    observations = _observations(section, ranked, window)
    taken = [*observations, *(observed if section.label == SESSION else ())]
    known = [*_known(section, window), *(one.terms for one in taken)]
    facts = _chosen(_fitting(section, ranked, window), section.facts, known)
    return DraftAtoms(stream=section.label, observations=_drafts(observations), facts=_drafts(facts))


def _observations(section: StreamSection, ranked: Sequence[Sentence], window: Window) -> list[Sentence]:
    fitting = _fitting(section, ranked, window)
    observed = [one for one in fitting if section.label != PERSON or is_observation(one)]
    return _chosen(observed, section.observations, _known(section, window))


def _fitting(section: StreamSection, ranked: Sequence[Sentence], window: Window) -> Sequence[Sentence]:
    """Return what a stream may take; a shard what shares words with its prompt, never what people say of themselves."""
    if section.label in (PERSON, SESSION):
        return ranked
    wanted = set(content_words(section.prompt, window.language))
    return [one for one in ranked if len(one.terms & wanted) >= SHARED and not one.is_of_speaker]


def _known(section: StreamSection, window: Window) -> list[frozenset[str]]:
    """Return the words of each line that a stream has."""
    return [frozenset(content_words(line, window.language)) for line in section.current.splitlines()]


def _chosen(ranked: Sequence[Sentence], limits: Limits | None, known: Sequence[frozenset[str]]) -> list[Sentence]:
    """Return the first sentences that are short enough, and unlike what is known and each other, in order of time."""
    said = list(known)
    chosen: list[Sentence] = []
    for one in ranked:
        if limits is None or len(chosen) >= limits.most:
            break
        if len(one.told.split()) <= limits.words and not any(says(line, one.terms, KNOWN) for line in said):
            chosen.append(one)
            said.append(one.terms)
    return sorted(chosen, key=lambda one: (one.turn.index, one.place))


def _drafts(chosen: Iterable[Sentence]) -> list[DraftAtom]:
    return [DraftAtom(text=one.told, message_indexes=[one.turn.index]) for one in chosen]
