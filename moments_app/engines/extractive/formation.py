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
from moments_app.engines.statements import statement_of, worth_of

KNOWN = 0.7  # of a statement's words that something known has
LASTING = 0.7  # worth of what a person's stream keeps by itself though it has no room as an observation
SHARED = 2  # words that a sentence has of a shard's prompt
PERSON, SESSION = "user", "session"  # labels of the streams that are nobody else's


def form_memories(request: FormationRequest) -> FormationAnswer:
    """Choose for each stream among the statements of its turns; results of tools are left out."""
    window = read(request.turns)
    statements = [one for one in window.sentences if one.turn.role != "tool" and one.can_be_kept]
    ranked = sorted(statements, key=lambda one: -information(one, window.weights))
    of_person = _of_person(request.sections, ranked, window)
    entries = [_entry(section, ranked, window, of_person) for section in request.sections]
    return FormationAnswer(streams=[entry.model_dump() for entry in entries])


def is_observation(sentence: Sentence) -> bool:
    """Tell whether the person says something of themselves that will be true for a while."""
    if sentence.turn.role != "user" or not sentence.can_be_kept or sentence.is_quoted:
        return False
    return bool(sentence.kinds) if sentence.language == ENGLISH else sentence.is_of_speaker


def is_fact(sentence: Sentence) -> bool:
    """Tell whether it gives something one value, as where somebody lives, which holds until another is said."""
    return sentence.language == ENGLISH and sentence.turn.role != "tool" and bool(statement_of(sentence.told))


def _of_person(sections: Sequence[StreamSection], ranked: Sequence[Sentence], window: Window) -> Sequence[Sentence]:
    """Return what the person's stream takes in: the session needn't take the same as a fact."""
    section = next((section for section in sections if section.label == PERSON), None)
    return [*_facts_of_person(section, ranked, window), *_observations(section, ranked, window)] if section else []


def _entry(
    section: StreamSection, ranked: Sequence[Sentence], window: Window, of_person: Sequence[Sentence]
) -> DraftAtoms:
    """Return what one stream gets. It takes a text once, so that what it gets as an observation is no fact of it."""
    observations = _observations(section, ranked, window)
    if section.label == PERSON:
        facts = _facts_of_person(section, ranked, window)
    else:
        taken = [*observations, *(of_person if section.label == SESSION else ())]
        known = [*_known(section, window), *(one.terms for one in taken)]
        facts = _chosen(_fitting(section, ranked, window), section.facts, known)
    return DraftAtoms(stream=section.label, observations=_drafts(observations), facts=_drafts(facts))


def _facts_of_person(section: StreamSection, ranked: Sequence[Sentence], window: Window) -> list[Sentence]:
    """Return what has one value at a time, however much else is said in the same words; then what else lasts."""
    known = {line.casefold() for line in section.known}
    own = [one for one in ranked if one.turn.role == "user" and one.told.casefold() not in known]
    observed = _observations(section, ranked, window)
    valued = _chosen([one for one in own if is_fact(one)], section.facts, [], enough=1.0)
    lasting = [one for one in own if one not in observed and one not in valued and _lasts(one)]
    said = [*_known(section, window), *(one.terms for one in [*observed, *valued])]
    return _chosen([*valued, *_chosen(lasting, section.facts, said)], section.facts, [], enough=1.0)


def _lasts(sentence: Sentence) -> bool:
    return is_observation(sentence) and worth_of(sentence.told) >= LASTING


def _observations(section: StreamSection, ranked: Sequence[Sentence], window: Window) -> list[Sentence]:
    fitting = _fitting(section, ranked, window)
    if section.label == PERSON:
        fitting = [one for one in fitting if is_observation(one) and not (section.facts and is_fact(one))]
    return _chosen(fitting, section.observations, _known(section, window))


def _fitting(section: StreamSection, ranked: Sequence[Sentence], window: Window) -> Sequence[Sentence]:
    """Return what a stream may take; a shard what shares words with its prompt, never what people say of themselves."""
    if section.label in (PERSON, SESSION):
        return [one for one in ranked if not one.is_quoted]
    wanted = set(content_words(section.prompt, window.language))
    return [one for one in ranked if len(one.terms & wanted) >= SHARED and not one.is_of_speaker]


def _known(section: StreamSection, window: Window) -> list[frozenset[str]]:
    """Return the words of each line that a stream has."""
    return [frozenset(content_words(line, window.language)) for line in section.known]


def _chosen(
    ranked: Sequence[Sentence],
    limits: Limits | None,
    known: Sequence[frozenset[str]],
    *,
    enough: float = KNOWN,
) -> list[Sentence]:
    """Return the first sentences that are short enough, and unlike what is known and each other, in order of time."""
    said = list(known)
    chosen: list[Sentence] = []
    for one in ranked:
        if limits is None or len(chosen) >= limits.most:
            break
        if len(one.told.split()) <= limits.words and not any(says(line, one.terms, enough) for line in said):
            chosen.append(one)
            said.append(one.terms)
    return sorted(chosen, key=lambda one: (one.turn.index, one.place))


def _drafts(chosen: Iterable[Sentence]) -> list[DraftAtom]:
    return [DraftAtom(text=one.told, message_indexes=[one.turn.index]) for one in chosen]
