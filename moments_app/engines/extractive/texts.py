"""Write texts: the digest of a session with its lessons, the rolling summary, and the text of a stream."""

import re
from collections.abc import Iterable

from moments_app.engines.calls.consolidation import ConsolidationAnswer, ConsolidationRequest, DraftLine
from moments_app.engines.calls.digest import DigestAnswer, DigestRequest
from moments_app.engines.calls.summary import Fact, SummaryAnswer, SummaryRequest
from moments_app.engines.extractive.kinds import is_instruction
from moments_app.engines.extractive.language import words
from moments_app.engines.extractive.sentences import Sentence, dated, fallback, read, says, telling

LESSON_WORDS = (4, 40)  # minimum and maximum words
_PERSONAL = re.compile(
    r"\b(?:I|I'm|I'd|I'll|I've|me|my|mine|we|us|our|he|him|his|she|her|they|them|their|your?|yours)\b|\d|@",
    re.IGNORECASE,
)
WORDS_PER_TURN = 16  # about 220 for 14 turns


def digest(request: DigestRequest) -> DigestAnswer:
    """Return the earlier context with the most informative sentences of the turns, and their lessons."""
    window = read(request.turns)
    stated = [sentence for sentence in window.sentences if sentence.is_statement] or window.sentences
    new = dated(telling(stated, window.weights, request.max_words * 3 // 4)) or fallback(request.turns[-1])
    lines = [line for line in request.context.split("\n") if line.strip()] + new.split("\n")
    while len(lines) > 1 and sum(len(line.split()) for line in lines) > request.max_words:
        lines.pop(0)
    lessons = [sentence.text for sentence in window.sentences if is_lesson(sentence)]
    return DigestAnswer(context="\n".join(lines)[:8_000], lessons=list(dict.fromkeys(lessons))[:5])


def is_lesson(sentence: Sentence) -> bool:
    """Return whether a person says how the assistant should work, without naming anyone, because lessons are shared."""
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
    window = read(request.turns)
    stated = [sentence for sentence in window.sentences if sentence.is_statement] or window.sentences
    new = telling(stated, window.weights, WORDS_PER_TURN * len(request.turns))
    kept = [fact for fact in request.base_facts if min(fact.message_indexes, default=-1) >= request.start]
    facts = kept + [Fact(fact=dated([sentence]), message_indexes=[sentence.turn.index]) for sentence in new]
    text = _under_dates(fact.fact for fact in facts) or fallback(request.turns[0])
    return SummaryAnswer(summary_text=text[:6_000], facts=facts[-100:])


def _under_dates(facts: Iterable[str]) -> str:
    """Return the facts, one per line, with the date each time it changes."""
    lines: list[str] = []
    date = ""
    for fact in facts:
        day, _, rest = fact.partition("] ")
        lines.append(rest if day == date and rest else fact)
        date = day
    return "\n".join(lines)


def consolidate(request: ConsolidationRequest) -> ConsolidationAnswer:
    """Add the observations that no current line repeats."""
    lines = [DraftLine(text=line.text, carries=[line.label]) for line in request.lines]
    said = [set(words(line.text)) for line in lines]
    for observation in request.observations:  # a call has a few hundred at most, however long the text is
        own = set(words(observation.text))
        number = next((number for number, known in enumerate(said) if says(known, own)), None)
        if number is None:
            lines.append(DraftLine(text=f"- {observation.text}", carries=[observation.label]))
            said.append(own)
        else:
            lines[number].carries.append(observation.label)
    return ConsolidationAnswer(lines=lines)
