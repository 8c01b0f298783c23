"""The digest: the most informative sentences of the turns, and lessons in the person's words."""

import re

from moments_app.engines.calls.digest import DigestAnswer, DigestRequest
from moments_app.engines.extractive.kinds import is_instruction
from moments_app.engines.extractive.sentences import Sentence, dated, fallback, read, telling

LESSON_WORDS = (4, 40)  # minimum and maximum words
_PERSONAL = re.compile(
    r"\b(?:I|I'm|I'd|I'll|I've|me|my|mine|we|us|our|he|him|his|she|her|they|them|their|your?|yours)\b|\d|@",
    re.IGNORECASE,
)


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
