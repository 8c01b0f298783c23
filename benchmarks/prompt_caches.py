"""Benchmark of prompt caching: `python -m benchmarks.prompt_caches FOLDER`.

Providers discount the part of a prompt that repeats the start of an earlier one. The first conversation of the folder
is stored and settled. Then its questions are asked in a new session. Each is answered, and the jobs of a round run
before the next. The benchmark prints the share of each round's context that is also the start of the previous one.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.clients import Http
from benchmarks.conversations import BadConversations, read_folder
from benchmarks.figures import print_markdown
from benchmarks.measures import same_beginning
from benchmarks.site import Site
from benchmarks.stored import StoredConversation, do_due_jobs, let_a_minute_pass, let_an_hour_pass, put_in, store

ROUNDS = 50
GREETING = [{"role": "user", "content": "Hi there."}]
TITLE = "Prompts that stay the same"
NOTE = (
    f"Mean share, minimum: the share of a prompt that is also the start of the previous prompt, over {ROUNDS} rounds."
)


@dataclass(frozen=True)
class HeldConversation:
    """A simulated conversation with contexts of one plan.

    Args:
        plan: The plan of the contexts.
        shares: For each prompt except the first, the share that is the start of the previous one.
        tokens: The tokens of each prompt.
    """

    plan: str
    shares: list[float]
    tokens: list[int]

    @property
    def mean_share(self) -> float:
        return fmean(self.shares)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prompt_caches", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    try:
        first, *_ = read_folder(parser.parse_args(arguments).folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    with Site({"EMBEDDING__PROVIDER": "none"}) as site:
        stored = store(Http(site.port, site.key), first)
        let_a_minute_pass(do_due_jobs)
        let_an_hour_pass(do_due_jobs)
        held = [hold(Http(site.port, site.key), stored, plan) for plan in plans()]
    rows = [[one.plan, f"{one.mean_share:.3f}", f"{min(one.shares):.3f}", f"{fmean(one.tokens):,.0f}"] for one in held]
    print_markdown(TITLE, ["plan", "mean share", "minimum", "tokens"], rows, NOTE)
    return 0


def plans() -> list[str]:
    """Return the available plans, the default first."""
    from rest_framework.serializers import ChoiceField

    from moments_app.interfaces.api.memory import ContextInput

    known = ContextInput().fields.get("plan")
    return sorted(known.choices) if isinstance(known, ChoiceField) else ["query"]


def hold(http: Http, stored: StoredConversation, plan: str) -> HeldConversation:
    """Simulate a conversation with a person who has memory. Jobs of a round run before the next round."""
    user_id, session_id = stored.conversation.id, f"rounds-{plan}"
    put_in(http, user_id, session_id, GREETING)
    prompts, tokens = [], []
    for said, answer in itertools.islice(_rounds(stored), ROUNDS):
        wanted = {"user_id": user_id, "session_id": session_id, "query": said, "format": "messages"}
        wanted |= {} if plan == "query" else {"plan": plan}
        context = json.loads(http.request("POST", "/api/v1/memory/context", wanted))
        prompts.append("\n".join(f"{message['role']}: {message['content']}" for message in context["context"]))
        tokens.append(context["budget"]["estimated_used"])
        said_and_answered = [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
        put_in(http, user_id, session_id, said_and_answered)
        do_due_jobs()
    shares = [same_beginning(prompt, before) for before, prompt in itertools.pairwise(prompts)]
    return HeldConversation(plan, shares, tokens)


def _rounds(stored: StoredConversation) -> Iterator[tuple[str, str]]:
    """Yield the questions with their answers in an endless loop, each with the number of its round."""
    asked = itertools.cycle(stored.conversation.scored)
    return ((f"{question.q} ({n})", f"{question.a} ({n})") for n, question in enumerate(asked, start=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
