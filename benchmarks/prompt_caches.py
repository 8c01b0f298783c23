"""Measurement of prompt caching: the share of a prompt that a provider has seen in the previous round and discounts."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from benchmarks.ask import GREETING
from benchmarks.clients import Http
from benchmarks.measures import same_beginning
from benchmarks.stored import StoredConversation, do_due_jobs, put_in

ROUNDS = 50


@dataclass(frozen=True)
class HeldConversation:
    """A conversation that was held with contexts of one plan.

    Args:
        plan: The plan of the contexts.
        shares: For each prompt but the first, the share that is the beginning of the previous one.
        tokens: The tokens of each prompt.
    """

    plan: str
    shares: list[float]
    tokens: list[int]

    @property
    def mean_share(self) -> float:
        return fmean(self.shares)


def plans() -> list[str]:
    """Return the plans that the site knows, its default first."""
    from rest_framework.serializers import ChoiceField

    from moments_app.interfaces.api.context import ContextInput

    known = ContextInput().fields.get("plan")
    return sorted(known.choices) if isinstance(known, ChoiceField) else ["query"]


def hold(http: Http, stored: StoredConversation, plan: str) -> HeldConversation:
    """Hold a conversation with a person who has a past. Jobs that a round makes due run before the next round."""
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
