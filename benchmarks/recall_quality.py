"""Benchmark of the quality of recall and contexts: `python -m benchmarks.recall_quality FOLDER`.

It stores all conversations of the folder in a new site and asks each question twice: at once, and again after all the
work that a site does in a day. It prints the share of the answering turns that a search returns, and the share of them
and of the answer's words that a context holds. With an embeddings provider in the environment, it also searches by
meaning.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from benchmarks.ask import BUDGETS, FEW, MOST, Asker, SearchScore, StoredConversation, TextScore
from benchmarks.clients import Http
from benchmarks.conversations import BadConversations, Conversation, read_folder
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.prompt_caches import ROUNDS, HeldConversation, hold, plans
from benchmarks.seed import settle
from benchmarks.site import Site
from benchmarks.stored import TurnPlace, let_an_hour_pass, let_the_night_pass, put_in

# Work that would wait half an hour is done on request; all other settings have their defaults.
NO_WAITING = {"SESSION_COMPACTION__INACTIVE_AFTER_MINUTES": "0.0001"}
BY_WORDS, BY_BOTH = "words", "words and meaning"
KINDS: dict[str, dict[str, list[str]]] = {"default": {}, "turns alone": {"kinds": ["turn"]}}

RECALL = "Quality of recall"
RECALL_NOTE = (
    f"Recall: the share of a question's evidence among the best {MOST} results (or {FEW}), averaged over questions. "
    f"The columns of conversations and categories show recall@{MOST}. A turn counts as found if it is a result or if a "
    "result has 80 % of its content words. Milliseconds: over HTTP, one client, with the query's vector known."
)
CONTEXTS = "Answers in contexts"
CONTEXTS_NOTE = (
    "Evidence: the share of a question's evidence with 80 % of its content words in the context. Words: the share of "
    "the answer's content words. By rank alone: the turns that a search finds, best first, until the budget is full, "
    "without any other memory."
)
CACHES = "Prompts that stay the same"
CACHES_NOTE = f"The share of a prompt that is also the beginning of the previous one, over {ROUNDS} rounds."


@dataclass(frozen=True)
class Scores:
    """The scores of all questions in one state and with one kind of search.

    Args:
        state, search: The state and the kind of search.
        searched: The scores of searches by the requested kinds.
        served, by_rank: For each question, the scores by budget: of contexts, and of turns taken by rank alone.
    """

    state: str
    search: str
    searched: dict[str, list[SearchScore]]
    served: list[dict[int, TextScore]]
    by_rank: list[dict[int, TextScore]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall_quality", description=RECALL)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    parser.add_argument("--limit", type=int, help="most questions per conversation; without it, all are asked")
    asked = parser.parse_args(arguments)
    try:
        conversations = read_folder(asked.folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    with Site(NO_WAITING) as site:
        print(describe_machine(site.conninfo))
        benchmark = Benchmark(site, conversations, asked.limit)
        scores = list(benchmark.scores())
        _print_recall(scores)
        _print_contexts(scores)
        _print_caches(benchmark.held())
    return 0


class Benchmark:
    """A site with the conversations in it.

    Args:
        site: An empty site.
        conversations: The conversations to store.
        limit: The most questions per conversation; None for all.
    """

    def __init__(self, site: Site, conversations: Sequence[Conversation], limit: int | None) -> None:
        from django.conf import settings

        # Two web servers of one site, which differ only in the way they search.
        self._ports = {BY_WORDS: site.serve(EMBEDDING__PROVIDER="none")}
        if settings.EMBEDDING.is_on:
            self._ports[BY_BOTH] = site.port
        self._key = site.key
        http = self._http(BY_WORDS)
        self._stored = [_stored(http, conversation) for conversation in conversations]
        self._questions = [(one, question) for one in self._stored for question in one.conversation.scored[:limit]]

    def scores(self) -> Iterator[Scores]:
        """Yield the scores in both states. At once there are no vectors yet, so only words are searched."""
        settle()
        yield self._scores("at once", BY_WORDS, self._by_rank(BY_WORDS))
        let_an_hour_pass()
        settle()
        # Measured before turns are archived, because an application without the platform has all of them.
        by_rank = {search: self._by_rank(search) for search in self._ports}
        let_the_night_pass()
        settle()
        for search in self._ports:
            yield self._scores("settled", search, by_rank[search])

    def held(self) -> list[HeldConversation]:
        """Return the first person's conversation, held once with each plan."""
        return [hold(self._http(BY_WORDS), self._stored[0], plan) for plan in plans()]

    def _by_rank(self, search: str) -> list[dict[int, TextScore]]:
        asker = self._asker(search)
        return [asker.fill_by_rank(*one) for one in self._questions]

    def _scores(self, state: str, search: str, by_rank: list[dict[int, TextScore]]) -> Scores:
        asker = self._asker(search)
        searched = {kinds: [asker.search(*one, fields) for one in self._questions] for kinds, fields in KINDS.items()}
        session_id = f"now {state} {search}".replace(" ", "-")
        for stored in self._stored:
            asker.greet(stored, session_id)
        served = [asker.score_contexts(*one, session_id) for one in self._questions]
        return Scores(state, search, searched, served, by_rank)

    def _asker(self, search: str) -> Asker:
        return Asker(self._http(search), "text" if search == BY_WORDS else "hybrid")

    def _http(self, search: str) -> Http:
        """Return a new connection: the site closes one that has been idle for long."""
        return Http(self._ports[search], self._key)


def _stored(http: Http, conversation: Conversation) -> StoredConversation:
    """Store a conversation for a person of its own."""
    places: dict[str, TurnPlace] = {}
    for session in conversation.sessions:
        places |= put_in(http, conversation.id, f"session-{session.n}", conversation.messages(session))
    return StoredConversation(conversation, places)


# --- tables ---


def _print_recall(scores: Sequence[Scores]) -> None:
    all_groups = [searched.groups for searched in scores[0].searched["default"]]
    conversations, categories = (dict.fromkeys(names) for names in zip(*all_groups, strict=True))
    groups = [*conversations, *sorted(categories)]
    columns = ["state", "search", "kinds", f"recall@{MOST}", f"recall@{FEW}", *groups, "questions", "p50 ms"]
    rows = [
        [one.state, one.search, kinds, *_of_recall(searched, groups)]
        for one in scores
        for kinds, searched in one.searched.items()
    ]
    print_markdown(RECALL, columns, rows, RECALL_NOTE)


def _of_recall(searched: Sequence[SearchScore], groups: Sequence[str]) -> list[str]:
    shares = [fmean(one.of_most for one in searched), fmean(one.of_few for one in searched)]
    shares += [fmean(one.of_most for one in searched if group in one.groups) for group in groups]
    p50_ms = median(one.seconds for one in searched) * 1000
    return [*(f"{share:.3f}" for share in shares), str(len(searched)), f"{p50_ms:.2f}"]


def _print_contexts(scores: Sequence[Scores]) -> None:
    columns = ["state", "search", "budget", "evidence", "words", "tokens"]
    columns += ["by rank: evidence", "by rank: words", "by rank: tokens"]
    rows = [
        [one.state, one.search, f"{budget:,}", *_means(one.served, budget), *_means(one.by_rank, budget)]
        for one in scores
        for budget in BUDGETS
    ]
    print_markdown(CONTEXTS, columns, rows, CONTEXTS_NOTE)


def _means(by_budget: Sequence[dict[int, TextScore]], budget: int) -> list[str]:
    of = [filled[budget] for filled in by_budget]
    evidence, answer = fmean(one.evidence for one in of), fmean(one.answer for one in of)
    return [f"{evidence:.3f}", f"{answer:.3f}", f"{fmean(one.tokens for one in of):,.0f}"]


def _print_caches(held: Sequence[HeldConversation]) -> None:
    rows = [[one.plan, f"{one.mean_share:.3f}", f"{min(one.shares):.3f}", f"{fmean(one.tokens):,.0f}"] for one in held]
    print_markdown(CACHES, ["plan", "mean share", "least", "tokens"], rows, CACHES_NOTE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
