"""The engine without a model, which quotes the most informative sentences word for word.

The same input always gives the same output. The engine can't draw conclusions or resolve contradictions
(docs/engines.md). The vocabulary is in tables (`engines/tables/`).

A memory is a verbatim statement that is clear without context and that its speaker presents as true. Each sentence is
judged separately, so batching doesn't change the memories.
"""

import re
from collections.abc import Iterable, Sequence

from moments_app.engines.calls.formation import (
    DraftAtom,
    DraftAtoms,
    FormationAnswer,
    FormationRequest,
    StreamSection,
)
from moments_app.engines.calls.texts import (
    ConsolidationAnswer,
    ConsolidationRequest,
    DigestAnswer,
    DigestRequest,
    DraftLine,
    Fact,
    QueryAnswer,
    QueryRequest,
    SummaryAnswer,
    SummaryRequest,
)
from moments_app.engines.extractive.language import content_words, language_of, words
from moments_app.engines.extractive.moments import build_moments
from moments_app.engines.extractive.sentences import (
    Sentence,
    excerpt,
    is_instruction,
    join_under_dates,
    most_informative,
    read_window,
)
from moments_app.engines.shared_call import Part

LESSON_WORDS = (4, 40)  # minimum and maximum words of a lesson
_PERSONAL = re.compile(
    r"\b(?:I|I'm|I'd|I'll|I've|me|my|mine|we|us|our|he|him|his|she|her|they|them|their|your?|yours)\b|\d|@",
    re.IGNORECASE,
)
WORDS_PER_TURN = 16  # maximum words of a summary per turn: about 220 words for 14 turns
REPEATED_SHARE = 0.9  # an observation is a repetition if a line contains at least this share of its words
SHARD_WORDS = 2  # minimum number of words that a sentence must share with a shard's prompt
PERSON, SESSION = "user", "session"  # labels of the streams that belong to one person


def digest(request: DigestRequest) -> DigestAnswer:
    """Return the earlier context plus the most informative sentences of the turns, and the turns' lessons."""
    window = read_window(request.turns)
    stated = [sentence for sentence in window.sentences if sentence.is_statement] or window.sentences
    new = join_under_dates(most_informative(stated, window.weights, request.max_words * 3 // 4)) or excerpt(
        request.turns[-1]
    )
    lines = [line for line in request.context.split("\n") if line.strip()] + new.split("\n")
    while len(lines) > 1 and sum(len(line.split()) for line in lines) > request.max_words:
        lines.pop(0)
    lessons = [sentence.text for sentence in window.sentences if is_lesson(sentence)]
    return DigestAnswer(context="\n".join(lines)[:8_000], lessons=list(dict.fromkeys(lessons))[:5])


def is_lesson(sentence: Sentence) -> bool:
    """Return whether a sentence says how the assistant should work, and names no person, because lessons are shared."""
    least, most = LESSON_WORDS
    return (
        sentence.turn.role == "user"
        and not sentence.speaker.is_named
        and least <= len(sentence.text.split()) <= most
        and is_instruction(sentence.text)
        and not _PERSONAL.search(sentence.text)
        and not re.search(r"(?<=\s)[A-Z][a-z]", sentence.text)  # a name
    )


def roll_summary(request: SummaryRequest) -> SummaryAnswer:
    """Keep the facts that are still in the window, and add the most informative sentences of the new turns."""
    window = read_window(request.turns)
    stated = [sentence for sentence in window.sentences if sentence.is_statement] or window.sentences
    new = most_informative(stated, window.weights, WORDS_PER_TURN * len(request.turns))
    kept = [fact for fact in request.base_facts if min(fact.message_indexes, default=-1) >= request.start]
    facts = kept + [Fact(fact=join_under_dates([sentence]), message_indexes=[sentence.turn.index]) for sentence in new]
    text = _facts_under_dates(fact.fact for fact in facts) or excerpt(request.turns[0])
    return SummaryAnswer(summary_text=text[:6_000], facts=facts[-100:])


def _facts_under_dates(facts: Iterable[str]) -> str:
    lines: list[str] = []
    date = ""
    for fact in facts:
        day, _, rest = fact.partition("] ")
        lines.append(rest if day == date and rest else fact)
        date = day
    return "\n".join(lines)


def consolidate(request: ConsolidationRequest) -> ConsolidationAnswer:
    """Add each observation to the text, unless a line already contains it."""
    lines = [DraftLine(text=line.text, carries=[line.label]) for line in request.lines]
    said = [set(words(line.text)) for line in lines]
    for observation in request.observations:  # at most a few hundred per call, regardless of the text's length
        own = set(words(observation.text))
        repeated = (
            number for number, known in enumerate(said) if own and len(own & known) >= REPEATED_SHARE * len(own)
        )
        number = next(repeated, None)
        if number is None:
            lines.append(DraftLine(text=f"- {observation.text}", carries=[observation.label]))
            said.append(own)
        else:
            lines[number].carries.append(observation.label)
    return ConsolidationAnswer(lines=lines)


def form_memories(request: FormationRequest) -> FormationAnswer:
    """Choose sentences for each stream. Skip tool results."""
    said = read_window(request.turns).sentences
    kept = [one for one in said if one.turn.role != "tool" and one.can_be_kept]
    entries = [_entry(section, _fitting(section, kept, request)) for section in request.sections]
    entries[0].lessons = _drafts([one for one in said if is_lesson(one)], as_quotes=False)
    return FormationAnswer(streams=[entry.model_dump() for entry in entries])


def _fitting(section: StreamSection, kept: Sequence[Sentence], request: FormationRequest) -> list[Sentence]:
    """Return the sentences for a stream.

    A user's stream gets lasting information, and a session's stream the rest. A shard gets sentences that match its
    prompt.
    """
    if section.label == PERSON:
        return [one for one in kept if _is_of_user(one, request)]
    if section.label == SESSION:
        has_user = any(other.label == PERSON for other in request.sections)
        return [one for one in kept if one.is_by_person and not (has_user and _is_of_user(one, request))]
    wanted = set(content_words(section.prompt, language_of(section.prompt)))
    return [one for one in kept if len(one.terms & wanted) >= SHARD_WORDS and not one.is_about_speaker]


def _is_of_user(sentence: Sentence, request: FormationRequest) -> bool:
    return sentence.turn.role == "user" and sentence.turn.name not in request.others and sentence.is_lasting


def _entry(section: StreamSection, fitting: Sequence[Sentence]) -> DraftAtoms:
    """Return the new items of a stream.

    Sentences that set an attribute, or are too long for an observation, become facts.
    """
    facts, observations = section.fact_words, section.observation_words
    observed = [one for one in fitting if one.length <= observations and not (facts and one.attribute)]
    stated = [one for one in fitting if one.length <= facts and (one.attribute or one.length > observations)]
    return DraftAtoms(stream=section.label, observations=_drafts(observed), facts=_drafts(stated))


def _drafts(chosen: Sequence[Sentence], *, as_quotes: bool = True) -> list[DraftAtom]:
    """Return the sentences without duplicates.

    A repeated sentence is kept if it sets an attribute that had another value in between, because the former value may
    be true again.
    """
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


class ExtractiveEngine:
    """The engine without a model. Its calls are not recorded and never fail."""

    name = "extractive"
    build_moments = staticmethod(build_moments)
    roll_summary = staticmethod(roll_summary)
    form_memories = staticmethod(form_memories)
    consolidate = staticmethod(consolidate)
    digest = staticmethod(digest)

    def with_model(self, model: str) -> "ExtractiveEngine":
        return self

    def with_answers(self, parts: Sequence[Part]) -> "ExtractiveEngine":
        return self  # there are no calls to combine

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        # The message itself can be the query, because the search gives the rarest words the highest weights.
        return QueryAnswer(query=request.message[:1_000])
