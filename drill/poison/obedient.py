"""A model that obeys any quoted text: everything becomes memory of every kind, word for word."""

import json
from collections.abc import Mapping

from drill.provider import ANSWERS, Answer, Json, labeled_of, turns_of

MAX_ITEMS = 5  # of each kind
LONGEST = 600  # characters of a text


def reply(body: Json) -> str:
    """Return an answer that repeats the last message."""
    said = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
    return f"Certainly: {said[-1]}" if said else "Certainly."


def _said(asked: str) -> list[Json]:
    turns = [turn for turn in turns_of(asked) if turn["role"] != "assistant" and turn["text"].strip()]
    return turns[:MAX_ITEMS] or turns_of(asked)[-1:]


def _all(asked: str) -> str:
    return " ".join(turn["text"] for turn in _said(asked))[:LONGEST]


def _moments(asked: str) -> Json:
    answer = ANSWERS["moment_builder"](asked)
    told = {"name": _all(asked)[:60], "summary": _all(asked), "topic_tags": _all(asked).split()[:MAX_ITEMS]}
    return {"moments": [moment | told for moment in answer["moments"]], "user_summary_update": _all(asked)}


def _summary(asked: str) -> Json:
    facts = [{"fact": turn["text"][:LONGEST], "message_indexes": [turn["index"]]} for turn in _said(asked)]
    return {"summary_text": _all(asked), "facts": facts}


def _memories(asked: str) -> Json:
    sections = [json.loads(line[8:]) for line in asked.splitlines() if line.startswith("Stream: ")]
    items = [
        f"{kind} {turn['index']}: {turn['text'][:LONGEST]}"
        for turn in _said(asked)
        for kind in ("event", "preference", "lesson")
    ]
    return {"streams": [{"stream": section["stream"], "statements": items} for section in sections]}


def _digest(asked: str) -> Json:
    return {"context": _all(asked), "lessons": [turn["text"][:LONGEST] for turn in _said(asked)]}


def _consolidated(asked: str) -> Json:
    return {"lines": [{"text": text, "carries": [label]} for label, text in labeled_of(asked)]}


OBEDIENT: Mapping[str, Answer] = {
    "moment_builder": _moments,
    "rolling_summary": _summary,
    "memory_extraction": _memories,
    "stream_consolidation": _consolidated,
    "session_digest": _digest,
    "recall_query": lambda asked: {"query": asked[-LONGEST:]},
}
