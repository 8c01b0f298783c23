"""The texts that a reader answers from: our contexts, and texts to compare them with."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.answers.kept import KeptResults
from benchmarks.ask import DEFAULT, MODES, SESSION, WORDS, post, rank, until_answered
from benchmarks.clients import Http
from benchmarks.conversations import Conversation, Question
from benchmarks.measures import fill_budget
from benchmarks.site import Site
from benchmarks.stored import StoredConversation, let_a_minute_pass, let_an_hour_pass, store, wait_for_jobs

BUDGETS = (1_000, 3_000)  # tokens of a context
MEMORY, TURNS, EVIDENCE, WHOLE, NOTHING = "memory", "turns", "evidence", "whole transcript", "nothing"
CONDITIONS = (*(f"{what}, {budget:,}" for what in (MEMORY, TURNS) for budget in BUDGETS), EVIDENCE, WHOLE, NOTHING)
WHOLE_AT_MOST = 100_000  # tokens up to which a reader gets the whole transcript


def take_contexts(
    folder: Path, conversations: Sequence[Conversation], limit: int | None, contexts: KeptResults, costs: KeptResults
) -> None:
    """Store and settle each conversation in a site, and save the texts for its first questions.

    Args:
        folder: The folder of the site, which is kept for the next run.
        conversations: The conversations to store, each for its own person.
        limit: The maximum number of questions per conversation, or None.
        contexts: Receives the texts, by conversation, number of the question, and condition.
        costs: Receives the calls of the site's engine, by conversation and purpose.
    """
    missing = [one for one in conversations if _is_missing(one, limit, contexts)]
    if not missing:
        return
    with Site({}, folder) as site:
        port = site.run()
        with closing(Http(port, site.key)) as http:
            for conversation in missing:
                print(f"{conversation.id}: storing and settling it.", file=sys.stderr)
                _take(http, conversation, limit, contexts, costs)


def _is_missing(conversation: Conversation, limit: int | None, contexts: KeptResults) -> bool:
    numbers = range(len(conversation.questions[:limit]))
    return any((conversation.id, str(number), NOTHING) not in contexts for number in numbers)


def _take(http: Http, conversation: Conversation, limit: int | None, contexts: KeptResults, costs: KeptResults) -> None:
    stored = store(http, conversation)
    let_a_minute_pass(wait_for_jobs)
    let_an_hour_pass(wait_for_jobs)
    for purpose, cost in _costs(conversation):
        costs.keep((conversation.id, purpose), **cost)
    for number, question in enumerate(conversation.questions[:limit]):
        for condition, text, tokens in _texts(http, stored, question):
            contexts.keep((conversation.id, str(number), condition), q=question.q, context=text, tokens=tokens)


def _texts(http: Http, stored: StoredConversation, question: Question) -> Iterator[tuple[str, str, int]]:
    """Yield each condition with its text and its tokens. The last one marks the question as done."""
    from django.conf import settings

    from sessions_app.text.length import estimate_tokens

    search = DEFAULT if settings.EMBEDDING.is_on else WORDS
    for budget in BUDGETS:
        yield (f"{MEMORY}, {budget:,}", *_memory(http, stored.conversation.id, question, search, budget))
    [ranked] = until_answered(lambda: rank(stored, question.q, [MODES[search]]))
    lines = [(stored.lines[turn], estimate_tokens(stored.lines[turn])) for turn in ranked]
    for budget in BUDGETS:
        yield (f"{TURNS}, {budget:,}", *fill_budget(lines, budget))
    evidence = "\n".join(stored.lines[turn] for turn in question.evidence)
    yield EVIDENCE, evidence, estimate_tokens(evidence)
    whole = "\n".join(stored.lines.values())
    if (tokens := estimate_tokens(whole)) <= WHOLE_AT_MOST:
        yield WHOLE, whole, tokens
    yield NOTHING, "", 0


def _memory(http: Http, user_id: str, question: Question, search: str, budget: int) -> tuple[str, int]:
    """Return a context of a new session, without the question, and its tokens."""
    body = {"user_id": user_id, "session_id": SESSION, "query": question.q, "max_tokens": budget, "format": "markdown"}
    answer = until_answered(lambda: post(http, "context", search, body))
    return answer["context"].replace(question.q, ""), answer["budget"]["estimated_used"]


def _costs(conversation: Conversation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each purpose of engine calls about a person, with the calls, tokens and price."""
    from django.db.models import Count, Q, Sum

    from moments_app.models import EngineCall

    person = Q(job__user__user_id=conversation.id) | Q(job__session__user__user_id=conversation.id)
    rows = EngineCall.objects.filter(person).values("purpose", "engine")
    sums = rows.annotate(
        calls=Count("pk"), input_tokens=Sum("input_tokens"), output_tokens=Sum("output_tokens"), usd=Sum("cost_usd")
    )
    for row in sums.order_by("purpose"):
        yield (
            f"{row['purpose']} ({row['engine']})",
            {
                "calls": row["calls"],
                "input_tokens": row["input_tokens"] or 0,
                "output_tokens": row["output_tokens"] or 0,
                "usd": None if row["usd"] is None else float(row["usd"]),
            },
        )
