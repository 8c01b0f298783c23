"""Benchmark of the quality of recall and contexts: `python -m benchmarks.recall_quality FOLDER`.

It runs a default site and stores all conversations of the folder in it. Then it asks each question in three states:
just after the conversation, settled after an hour, and archived after a month. It prints the share of the evidence
turns in contexts and results: by words alone, by vectors alone, and by default.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.ask import DEFAULT, VECTORS, WORDS, Asker, Scores, rank_turns, until_answered
from benchmarks.clients import Http
from benchmarks.conversations import BadConversations, Conversation, Question, read_folder
from benchmarks.evidence import BUDGETS, COUNTS, Score
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.seed import settle
from benchmarks.site import Site
from benchmarks.stored import (
    StoredConversation,
    let_a_minute_pass,
    let_a_month_pass,
    let_an_hour_pass,
    store,
    wait_for_jobs,
)

CLIENTS = 2
ALL = ""  # instead of a conversation's id
TITLE = "Evidence in contexts and results"
COLUMNS = ["state", "kinds", "search", *(f"{n:,}" for n in BUDGETS), *(f"R@{n}" for n in COUNTS), "questions"]
NOTE = (
    "The share of a question's evidence in contexts of so many tokens, and among the best 5 and 10 results (R@5, "
    "R@10), averaged over questions. Everything: contexts and searches as they are by default. Turns: the turns that a "
    "search ranks, best first, until the budget is full."
)

Ask = Callable[[StoredConversation, Question], Scores]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall_quality", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    parser.add_argument("--limit", type=int, help="most questions per conversation; without it, all are asked")
    parser.add_argument("--each", action="store_true", help="also print the scores of each conversation")
    parser.add_argument("--turns-only", action="store_true", help="only rank turns, just after the conversations")
    parser.add_argument("--site", type=Path, help="folder that keeps the site of --turns-only for the next run")
    options = parser.parse_args(arguments)
    if options.site and not options.turns_only:
        parser.error("--site needs --turns-only.")
    try:
        conversations = read_folder(options.folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    with Site({}, options.site) as site:
        print(describe_machine(site.conninfo))
        benchmark = Benchmark(site, conversations, options.limit)
        print_markdown(TITLE, COLUMNS, benchmark.rows(turns_only=options.turns_only), NOTE)
        for conversation in conversations if options.each else ():
            print_markdown(conversation.id, COLUMNS, benchmark.rows_of(conversation.id), NOTE)
    return 0


class Benchmark:
    """A site with the conversations, and the scores of their questions.

    Args:
        site: A site that isn't running yet.
        conversations: The conversations to store.
        limit: The maximum number of questions per conversation, or None.
    """

    def __init__(self, site: Site, conversations: Sequence[Conversation], limit: int | None) -> None:
        self._site = site
        self._conversations = conversations
        self._limit = limit
        self._scores: dict[str, dict[tuple[str, str, str], list[Score]]] = defaultdict(lambda: defaultdict(list))

    def rows(self, *, turns_only: bool) -> Iterator[list[str]]:
        """Store the conversations, ask all questions in each state, and yield the rows of the table."""
        from django.conf import settings

        port = self._site.run()
        http = Http(port, self._site.key)
        stored = [store(http, conversation) for conversation in self._conversations]
        searches = (WORDS, VECTORS, DEFAULT) if settings.EMBEDDING.is_on else (WORDS,)
        ports = {WORDS: port}
        if settings.EMBEDDING.is_on and not turns_only:
            ports = {WORDS: self._site.serve(EMBEDDING__PROVIDER="none"), DEFAULT: port}
        ask = partial(rank_turns, searches=searches) if turns_only else Asker(self._site.key, ports, searches).ask
        for state in _states(turns_only=turns_only):
            self._ask(state, ask, stored)
            yield from (row for row in self.rows_of(ALL) if row[0] == state)

    def rows_of(self, group: str) -> Iterator[list[str]]:
        """Yield the rows of a conversation, or of all."""
        for names, scores in self._scores[group].items():
            yield [*names, *Score.mean(scores).cells, str(len(scores))]

    def _ask(self, state: str, ask: Ask, stored: Sequence[StoredConversation]) -> None:
        """Ask all questions, and store their scores."""
        settle()
        for one in stored:
            one.read_sources()
        questions = [(one, question) for one in stored for question in one.conversation.scored[: self._limit]]
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(lambda asked: until_answered(partial(ask, *asked)), questions))
        for (one, _question), scores in zip(questions, answers, strict=True):
            for (kinds, search), score in scores.items():
                for group in (ALL, one.conversation.id):
                    self._scores[group][state, kinds, search].append(score)


def _states(*, turns_only: bool) -> Iterator[str]:
    """Yield each state once the site is in it."""
    let_a_minute_pass(wait_for_jobs)
    yield "just said"
    if turns_only:
        return
    let_an_hour_pass(wait_for_jobs)
    yield "settled"
    let_a_month_pass(wait_for_jobs)
    yield "archived"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
