"""The digest: the most telling sentences of the turns, and lessons as the person put them."""

import re

from moments_app.engines.calls.digest import DigestAnswer, DigestRequest
from moments_app.engines.extractive import verbs
from moments_app.engines.extractive.sentences import Sentence, dated, fallback, read, telling

LESSON_WORDS = (4, 40)  # at least, at most
# What an assistant should do, in sentences that name nobody and no particular thing.
_FROM_NOW = r"next time|from now on|in future|in the future"
_LESSON = re.compile(
    rf"^(?:(?:please|{_FROM_NOW}|and|so|ok|okay),? )*"
    r"(?:(?P<ever>always|never) (?P<verb>[\w']+)|don't|do not|stop|avoid|make sure|remember to|be sure to)\b",
    re.I,
)
_ASKED = re.compile(rf"\b(?:please|{_FROM_NOW})\b", re.I)
# What assistants do and make: "Don't use jargon" is for one, "Make sure yours stands out" is advice to a friend.
_ANSWERING = re.compile(
    r"\b(?:answer|repl(?:y|ies)|respon[ds]|explain|summari[sz]e|translate|quote|mention|repeat|suggest|recommend|ask|use"
    r"|begin|start|end|write|list|table|bullet|sentence|paragraph|emoji|markdown|code|jargon|language|unit)(?:e?s|ing)?\b",
    re.I,
)
_PERSONAL = re.compile(
    r"\b(?:I|I'm|I'd|I'll|I've|me|my|mine|we|us|our|he|him|his|she|her|they|them|their)\b|\d|@", re.I
)


def digest(request: DigestRequest) -> DigestAnswer:
    """Return what is known from before and the most telling sentences of the turns, and the lessons in them."""
    window = read(request.turns)
    stated = [sentence for sentence in window.sentences if sentence.is_statement] or window.sentences
    new = dated(telling(stated, window.weights, request.max_words * 3 // 4)) or fallback(request.turns[-1])
    lines = [line for line in request.context.split("\n") if line.strip()] + new.split("\n")
    while len(lines) > 1 and sum(len(line.split()) for line in lines) > request.max_words:
        lines.pop(0)
    lessons = [sentence.text for sentence in window.sentences if _is_lesson(sentence)]
    return DigestAnswer(context="\n".join(lines)[:8_000], lessons=list(dict.fromkeys(lessons))[:5])


def _is_lesson(sentence: Sentence) -> bool:
    """Tell whether a person says how the assistant should work, in words that hold for anybody: lessons are shared."""
    least, most = LESSON_WORDS
    return (
        sentence.turn.role == "user"
        and least <= len(sentence.text.split()) <= most
        and _tells_an_assistant(sentence.text)
        and not _PERSONAL.search(sentence.text)
        and not re.search(r"(?<=\s)[A-Z][a-z]", sentence.text)  # a name
    )


def _tells_an_assistant(text: str) -> bool:
    """Tell whether a text says what to do from now on, and isn't a remark ("Never saw that") or a friend's advice."""
    found = _LESSON.search(text)
    if found is None or (found["ever"] and not verbs.is_base(found["verb"].lower())):
        return False
    if _ASKED.search(text) or _ANSWERING.search(text):
        return True
    return bool(found["ever"]) and not re.search(r"\byour", text, re.I)
