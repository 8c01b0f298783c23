"""Form memories from statements that make sense alone and are held as true, word for word.

Each sentence is judged separately, so the same turns give the same memories, however they are batched.
"""

from collections.abc import Sequence

from moments_app.engines.calls.formation import (
    DraftAtom,
    DraftAtoms,
    FormationAnswer,
    FormationRequest,
    StreamSection,
)
from moments_app.engines.extractive.language import content_words, language_of
from moments_app.engines.extractive.sentences import Sentence, read
from moments_app.engines.extractive.texts import is_lesson

SHARED = 2  # minimum words that a sentence shares with a shard's prompt
PERSON, SESSION = "user", "session"  # labels of the streams that belong to one person


def form_memories(request: FormationRequest) -> FormationAnswer:
    """Choose the sentences for each stream. Tool results are left out."""
    said = read(request.turns).sentences
    kept = [one for one in said if one.turn.role != "tool" and one.can_be_kept]
    entries = [_entry(section, _fitting(section, kept, request)) for section in request.sections]
    entries[0].lessons = _drafts([one for one in said if is_lesson(one)], as_quotes=False)
    return FormationAnswer(streams=[entry.model_dump() for entry in entries])


def _fitting(section: StreamSection, kept: Sequence[Sentence], request: FormationRequest) -> list[Sentence]:
    """Return the sentences for a stream: lasting ones for a user, others for a session, matching ones for a shard.

    The session stream doesn't repeat sentences of the user stream. Shards take no sentences about their speaker.
    """
    if section.label == PERSON:
        return [one for one in kept if _is_of_user(one, request)]
    if section.label == SESSION:
        has_user = any(other.label == PERSON for other in request.sections)
        return [one for one in kept if one.is_of_person and not (has_user and _is_of_user(one, request))]
    wanted = set(content_words(section.prompt, language_of(section.prompt)))
    return [one for one in kept if len(one.terms & wanted) >= SHARED and not one.is_of_speaker]


def _is_of_user(sentence: Sentence, request: FormationRequest) -> bool:
    """Return whether the user says something lasting about themselves."""
    return sentence.turn.role == "user" and sentence.turn.name not in request.others and sentence.lasts


def _entry(section: StreamSection, fitting: Sequence[Sentence]) -> DraftAtoms:
    """Return a stream's entry: its facts are sentences with an attribute, or too long for an observation."""
    facts, observations = section.fact_words, section.observation_words
    observed = [one for one in fitting if one.length <= observations and not (facts and one.attribute)]
    stated = [one for one in fitting if one.length <= facts and (one.attribute or one.length > observations)]
    return DraftAtoms(stream=section.label, observations=_drafts(observed), facts=_drafts(stated))


def _drafts(chosen: Sequence[Sentence], *, as_quotes: bool = True) -> list[DraftAtom]:
    """Return the sentences without duplicates. An attribute may have a former value again after another value."""
    drafts: list[DraftAtom] = []
    latest: dict[str, str] = {}
    known: set[str] = set()
    for one in chosen:
        text = one.quote if as_quotes else one.text
        if text not in known or (one.attribute and latest.get(one.attribute) != text):
            drafts.append(DraftAtom(text=text, turns=[one.turn.index]))
        known.add(text)
        latest[one.attribute] = text
    return drafts
