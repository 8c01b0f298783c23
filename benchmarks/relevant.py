"""Benchmark of `retrieval=relevant`: `python -m benchmarks.relevant FOLDER`.

It stores the conversations of the folder in a default site, and lets an hour pass. Then it requests contexts for the
questions about each conversation, and for prompts that have nothing to do with it. The prompts are in
`samples/prompts`.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.ask import DEFAULT, SESSION, post, until_answered
from benchmarks.clients import Http
from benchmarks.conversations import read_folder
from benchmarks.evidence import share_in_text
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.site import Site
from benchmarks.stored import StoredConversation, let_a_minute_pass, let_an_hour_pass, store, wait_for_jobs

TOKENS = 1_000
PROMPTS = sorted((Path(__file__).parent / "samples/prompts").glob("*.txt"))
TITLE = "Results that fit the message"
COLUMNS = [
    "conversation",
    "questions",
    "with results",
    "evidence",
    "without a floor",
    *(f"{p.stem}: none" for p in PROMPTS),
]
NOTE = (
    f"Contexts of {TOKENS:,} tokens with only search results. With results: the share of the questions that get any. "
    "Evidence: the share of the evidence in the contexts, with `retrieval=relevant` and with the default. None: the "
    "share of the unrelated prompts that get no results."
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relevant", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    parser.add_argument("--site", type=Path, help="folder that keeps the site for the next run")
    options = parser.parse_args(arguments)
    with Site({}, options.site) as site:
        print(describe_machine(site.conninfo))
        with closing(Http(site.run(), site.key)) as http:
            stored = [store(http, conversation) for conversation in read_folder(options.folder)]
            let_a_minute_pass(wait_for_jobs)
            let_an_hour_pass(wait_for_jobs)
            print_markdown(TITLE, COLUMNS, rows(http, stored), NOTE)
    return 0


def rows(http: Http, stored: Iterable[StoredConversation]) -> Iterator[list[str]]:
    """Yield the row of each conversation."""
    for one in stored:
        questions = one.conversation.scored
        found = [context(http, one, question.q, "relevant") for question in questions]
        before = [context(http, one, question.q, "query") for question in questions]
        scores = [
            [
                share_in_text(one, question, answer["context"])
                for question, answer in zip(questions, answers, strict=True)
            ]
            for answers in (found, before)
        ]
        figures = [fmean(map(has_results, found)), *map(fmean, scores)]
        for path in PROMPTS:
            answers = [context(http, one, prompt, "relevant") for prompt in path.read_text().splitlines()]
            figures.append(1 - fmean(map(has_results, answers)))
        yield [one.conversation.id, str(len(questions)), *(f"{figure:.2f}" for figure in figures)]


def context(http: Http, stored: StoredConversation, query: str, retrieval: str) -> dict[str, Any]:
    """Request a context with only search results."""
    body = {"user_id": stored.conversation.id, "session_id": SESSION, "query": query, "retrieval": retrieval}
    asked = body | {"layers": ["retrieved"], "max_tokens": TOKENS, "format": "markdown"}
    answer: dict[str, Any] = until_answered(partial(post, http, "context", DEFAULT, asked))
    return answer


def has_results(answer: dict[str, Any]) -> bool:
    return bool(answer["sources"]["retrieved"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
