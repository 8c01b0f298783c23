"""How much of a round's prompt a provider has seen in the round before, and so charges less for."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from benchmarks.asking import GREETING, Stored
from benchmarks.clients import Http
from benchmarks.measures import same_beginning
from benchmarks.stored import do_due_jobs, put_in

ROUNDS = 50


@dataclass(frozen=True)
class Held:
    """A conversation that was held with contexts of one plan.

    Args:
        plan: of the contexts.
        shares: of each prompt but the first, how much of it is the beginning of the one before.
        tokens: of each.
    """

    plan: str
    shares: list[float]
    tokens: list[int]

    @property
    def mean_share(self) -> float:
        return fmean(self.shares)


def plans() -> list[str]:
    """Those that the site makes contexts by, its default first."""
    from rest_framework.serializers import ChoiceField

    from moments_app.interfaces.api.context import ContextInput

    known = ContextInput().fields.get("plan")
    return sorted(known.choices) if isinstance(known, ChoiceField) else ["query"]


def hold(http: Http, stored: Stored, plan: str) -> Held:
    """A person with a past asks and is answered; what a round makes due is done before the next."""
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
    return Held(plan, shares, tokens)


def _rounds(stored: Stored) -> Iterator[tuple[str, str]]:
    """The questions with their answers, again and again; a round has its number."""
    asked = itertools.cycle(stored.conversation.scored)
    return ((f"{question.q} ({n})", f"{question.a} ({n})") for n, question in enumerate(asked, start=1))
