"""The rolling summary: the facts that are still in the window, and the most informative sentences of the new turns."""

from collections.abc import Iterable

from moments_app.engines.calls.summary import Fact, SummaryAnswer, SummaryRequest
from moments_app.engines.extractive.sentences import dated, fallback, read, telling

WORDS_PER_TURN = 16  # about 220 for 14 turns


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
