"""Benchmark of the extractive engine's texts: `python -m benchmarks.memory_words FOLDER [--show N]`.

The engine reads each conversation session by session like the platform, but without a site. The benchmark prints how
many of the answers' words are in its texts: the profile, facts and moments, cut to the same length for all engines.
With `--show`, it prints every N-th moment and all other texts of the first conversation.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import log, sqrt
from pathlib import Path
from statistics import fmean

from benchmarks.conversations import BadConversations, Conversation, Question, read_folder
from benchmarks.figures import print_markdown
from benchmarks.measures import content_words, fill_budget, share

BUDGET = 1_000  # tokens
OBSERVATION_WORDS, FACT_WORDS = 25, 50  # default limits of an item of a person or a session
STEM = 5  # letters by which words are compared to rank lines
TITLE = "Answers' words in memory"
NOTE = (
    f"Share of the answers' content words in {BUDGET:,} tokens of memory. Kept: facts and observations. Unasked: what "
    "was kept, and the summaries of moments. Each gets half of the tokens, with lines taken evenly from beginning to "
    "end. Asked: the lines of what was kept and of moments that share the rarest words with the question, best "
    "first. Seconds: to read a conversation once for facts and once for moments."
)


@dataclass
class Memory:
    """The engine's texts about a conversation, oldest first."""

    facts: list[str] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    moments: list["MomentText"] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lines(self) -> list[str]:
        """All lines, without duplicates."""
        told = [line for moment in self.moments for line in (moment.summary, *moment.detail.split("\n"))]
        return list(dict.fromkeys(line for line in (*self.kept, *told) if line.strip()))

    @property
    def kept(self) -> list[str]:
        return [*self.observations, *self.facts]


@dataclass(frozen=True)
class MomentText:
    """The texts of a moment."""

    name: str
    summary: str
    detail: str
    tags: list[str]
    feelings: list[str]
    persons: list[str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_words", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    parser.add_argument("--show", type=int, metavar="N", help="also print every N-th moment, and what was kept")
    asked = parser.parse_args(arguments)
    _set_up_django()
    try:
        conversations = read_folder(asked.folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    memories = [read(conversation) for conversation in conversations]
    if asked.show:
        for memory in memories:
            show(memory, asked.show)
    rows = [_row(conversation, memory) for conversation, memory in zip(conversations, memories, strict=True)]
    columns = ["conversation", "unasked", "asked", "questions", "turns", "kept", "moments", "seconds"]
    print_markdown(TITLE, columns, rows, NOTE)
    return 0


def read(conversation: Conversation) -> Memory:
    """Return the extractive engine's memory of a conversation, read session by session."""
    memory = Memory()
    started = time.perf_counter()
    for session in conversation.sessions:
        _read_session(memory, conversation.messages(session))
    memory.seconds = time.perf_counter() - started
    return memory


def _read_session(memory: Memory, messages: Sequence[dict[str, str]]) -> None:
    from moments_app.engines.calls.moments import Journey, MomentRequest
    from moments_app.engines.extractive import ExtractiveEngine
    from moments_app.engines.transcript import Turn

    turns = [
        Turn(number, message["role"], message["content"], datetime.fromisoformat(message["created_at"]))
        for number, message in enumerate(messages)
    ]
    _form(memory, turns)
    built = ExtractiveEngine().build_moments(MomentRequest(turns, Journey(), ""))
    memory.moments += [
        MomentText(draft.name, draft.summary, draft.detail, draft.topic_tags, draft.emotion_tags, draft.present_persons)
        for draft in built.moments
    ]


def _form(memory: Memory, turns: Sequence[object]) -> None:
    """Form memories as the streams of a session and a person do by default."""
    from moments_app.engines.calls.formation import FormationRequest, StreamSection
    from moments_app.engines.extractive import ExtractiveEngine

    latest = "\n".join(memory.observations[-20:])[:6_000]
    sections = [
        StreamSection("session", "", 0, FACT_WORDS, ""),
        StreamSection("user", "", OBSERVATION_WORDS, 0, latest),
    ]
    for entry in ExtractiveEngine().form_memories(FormationRequest(turns, sections, "")).streams:  # type: ignore[arg-type]
        memory.facts += [item["text"] for item in entry["facts"]]
        memory.observations += [item["text"] for item in entry["observations"]]


def _row(conversation: Conversation, memory: Memory) -> list[str]:
    unasked = unasked_text(memory)
    scores = [
        (_found(question, unasked), _found(question, asked_text(memory, question)))
        for question in conversation.scored
        if content_words(question.a)
    ]
    shares = [f"{fmean(of):.3f}" for of in zip(*scores, strict=True)]
    turns = sum(1 for _ in conversation.turns)
    counts = [len(scores), turns, len(memory.kept), len(memory.moments)]
    return [conversation.id, *shares, *map(str, counts), f"{memory.seconds:.1f}"]


def _found(question: Question, text: str) -> float:
    answer = content_words(question.a)
    return share(answer & content_words(text), answer)


def unasked_text(memory: Memory) -> str:
    """Return the text that is shown without a question."""
    parts = [memory.kept, [moment.summary for moment in memory.moments]]
    return "\n".join(spread(part, BUDGET // len(parts)) for part in parts)


def spread(lines: Sequence[str], budget: int) -> str:
    """Return as many lines as fit into a budget, evenly spread from start to end."""
    for count in range(len(lines), 0, -1):
        taken = [lines[place * len(lines) // count] for place in range(count)]
        if _tokens(taken) <= budget:
            return "\n".join(taken)
    return ""


def asked_text(memory: Memory, question: Question) -> str:
    """Return the lines with the most words in common with a question."""
    lines = memory.lines
    stems = {line: _stems(line) for line in lines}
    wanted = _stems(question.q)
    count = {stem: sum(stem in own for own in stems.values()) for stem in wanted}

    def shared(line: str) -> float:
        rarity = sum(log(1 + len(lines) / count[stem]) for stem in wanted & stems[line])
        return rarity / sqrt(len(stems[line]) + 8)

    return _filled(sorted(lines, key=shared, reverse=True), BUDGET)


def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:STEM] for word in content_words(text))


def _filled(lines: Iterable[str], budget: int) -> str:
    return fill_budget([(line, _tokens([line])) for line in lines], budget)[0]


def _tokens(lines: Sequence[str]) -> int:
    from sessions_app.text.length import estimate_tokens

    return sum(map(estimate_tokens, lines))


def show(memory: Memory, step: int) -> None:
    """Print every N-th moment, and everything else."""
    for number, moment in list(enumerate(memory.moments))[::step]:
        print(f"\n## {number} {moment.name}\n\n{moment.summary}\n\n{moment.detail}\n")
        print(f"tags: {moment.tags}; feelings: {moment.feelings}; persons: {moment.persons}")
    print("\n# Observations", *memory.observations, "\n# Facts", *memory.facts, sep="\n- ")


def _set_up_django() -> None:
    import os

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    django.setup()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
