"""Memories: what the person says about themselves as observations, the most telling sentences as facts."""

from collections.abc import Iterable, Sequence

from moments_app.engines.calls.formation import (
    DraftAtom,
    DraftAtoms,
    FormationAnswer,
    FormationRequest,
    Limits,
    StreamSection,
)
from moments_app.engines.extractive.language import content_words, words
from moments_app.engines.extractive.profile import is_statement
from moments_app.engines.extractive.sentences import Sentence, Window, gain, read, says


def form_memories(request: FormationRequest) -> FormationAnswer:
    """Choose for each stream among the sentences of its turns; results of tools are left out."""
    window = read(request.turns)
    spoken = [
        sentence
        for position, turn in enumerate(request.turns)
        if turn.role != "tool"
        for sentence in window.sentences_of(position)
    ]
    entries = [_entry(section, spoken, window) for section in request.sections]
    return FormationAnswer(streams=[entry.model_dump() for entry in entries])


def _entry(section: StreamSection, spoken: Sequence[Sentence], window: Window) -> DraftAtoms:
    """Return what one stream gets; a shard what shares words with its prompt, never a statement about the person."""
    fitting = spoken
    if section.label.startswith("shard "):
        wanted = set(content_words(section.prompt, window.language))
        fitting = [one for one in spoken if len(one.terms & wanted) >= 2 and not is_statement(one)]
    observations = [one for one in fitting if section.label != "user" or is_statement(one)]
    return DraftAtoms(
        stream=section.label,
        observations=_drafts(observations, window.weights, section.observations, section.current),
        facts=_drafts(fitting, window.weights, section.facts, section.current),
    )


def _drafts(own: Sequence[Sentence], weights: dict[str, float], limits: Limits | None, current: str) -> list[DraftAtom]:
    if limits is None or not limits.most:
        return []
    short = [one for one in own if 3 <= len(one.text.split()) <= limits.words and not one.text.rstrip().endswith("?")]
    said = set(words(current))
    new = [one for one in _once(short) if not says(said, set(words(one.text)))]
    ranked = sorted(range(len(new)), key=lambda n: -gain(new[n], set(), weights))
    best = [new[n] for n in sorted(ranked[: limits.most])]
    return [DraftAtom(text=one.spoken, message_indexes=[one.turn.index]) for one in best]


def _once(own: Iterable[Sentence]) -> list[Sentence]:
    """Return the first of those that say the same."""
    first: dict[str, Sentence] = {}
    for one in own:
        first.setdefault(one.spoken, one)
    return list(first.values())
