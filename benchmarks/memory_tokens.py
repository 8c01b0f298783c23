"""Benchmark of the cost of memory: `python -m benchmarks.memory_tokens FOLDER`.

Each conversation of the folder is simulated round by round. After each round, due jobs run. After each session, the
site is idle for an hour, in which the session is settled. A test server with OpenAI's API answers like a model and
records the requests. The benchmark counts calls and tokens by purpose, for 1,000 turns, and compares them with the
prior result of `manage.py estimate`.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.conversations import BadConversations, Conversation, Session, read_folder
from benchmarks.figures import print_markdown
from benchmarks.measures import same_beginning
from benchmarks.site import Site
from tests.support.openai_server import OpenAIServer

EACH = 1_000  # the figures are per this number of turns
TITLE = "Tokens of memory"
NOTE = (
    f"Calls and estimated tokens per {EACH:,} turns, with all sessions settled. Known: earlier memory. Input: "
    "instructions, known and turns, without the schema. Same beginning: the share of the input that is also the "
    "start of the previous call with the same purpose. Providers charge less for it. Answers: the test server writes "
    "them, so their length says nothing about a real model. Estimate: the numbers of `estimate --everything` after "
    "all turns are stored."
)


@dataclass
class Spent:
    """The tokens of the calls for one purpose.

    Args:
        calls: The number of calls.
        instruction_tokens, known_tokens, turn_tokens, schema_tokens: Tokens by part of the request.
        input_tokens, repeated_tokens, output_tokens: Total tokens. Repeated: the common prefix with the previous call.
        told_calls, told_tokens: The estimated calls and input tokens.
    """

    calls: int = 0
    instruction_tokens: int = 0
    known_tokens: int = 0
    turn_tokens: int = 0
    schema_tokens: int = 0
    input_tokens: int = 0
    repeated_tokens: int = 0
    output_tokens: int = 0
    told_calls: int = 0
    told_tokens: int = 0


@dataclass
class Ledger:
    """The tokens by purpose."""

    spent: dict[str, Spent] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)

    def of(self, purpose: str) -> Spent:
        return self.spent.setdefault(purpose, Spent())

    def add(self, body: dict[str, Any]) -> None:
        """Count a request."""
        from moments_app.engines.transcript import BEGIN
        from sessions_app.text.length import estimate_tokens
        from tests.support.openai_server import right_answer

        purpose, text = purpose_of(body), _text(body)
        spent = self.of(purpose)
        spent.calls += 1
        tokens = estimate_tokens(text)
        spent.input_tokens += tokens
        spent.repeated_tokens += round(tokens * same_beginning(text, self.before.get(purpose, "")))
        self.before[purpose] = text
        if "input" not in body:
            instructions, asked = (message["content"] for message in body["messages"][:2])
            known, fence, turns = asked.partition(BEGIN)
            spent.instruction_tokens += estimate_tokens(instructions)
            spent.known_tokens += estimate_tokens(known)
            spent.turn_tokens += estimate_tokens(fence + turns)
            spent.schema_tokens += estimate_tokens(json.dumps(body["response_format"]["json_schema"]["schema"]))
            spent.output_tokens += estimate_tokens(json.dumps(right_answer(body), ensure_ascii=False))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_tokens", description=TITLE)
    parser.add_argument("folder", type=Path, help="folder of conversations, one JSON file each")
    parser.add_argument("--only", help="the conversation with this id alone")
    parser.add_argument("--contexts", action="store_true", help="also ask for a context before each answer")
    parser.add_argument("--together", action="store_true", help="settle all sessions together, as after an import")
    asked = parser.parse_args(arguments)
    try:
        conversations = read_folder(asked.folder)
    except BadConversations as error:
        print(error, file=sys.stderr)
        return 2
    wanted = [one for one in conversations if asked.only in (None, one.id)]
    with OpenAIServer() as model, Site(_models(model)):
        for conversation in wanted:
            model.requests.clear()
            ledger = hold(conversation, model, contexts=asked.contexts, together=asked.together)
            _print(conversation, ledger)
    return 0


def _models(model: OpenAIServer) -> dict[str, str]:
    urls = {"ENGINE__BASE_URL": model.base_url, "EMBEDDING__BASE_URL": model.base_url}
    return urls | {"EMBEDDING__PROVIDER": "openai", "JOBS__BACKOFF_SECONDS": "0"}


def hold(conversation: Conversation, model: OpenAIServer, *, contexts: bool, together: bool) -> Ledger:
    """Simulate a conversation. Return the tokens that memory used."""
    from benchmarks.stored import do_due_jobs, let_an_hour_pass

    for session in conversation.sessions:
        for messages in rounds_of(conversation, session):
            _say(conversation, session, messages, contexts=contexts)
            if not together:
                do_due_jobs()
        if not together:
            let_an_hour_pass(do_due_jobs)
    let_an_hour_pass(do_due_jobs)
    ledger = Ledger()
    for body in model.requests:
        ledger.add(body)
    _note_told(conversation, ledger)
    return ledger


def rounds_of(conversation: Conversation, session: Session) -> Iterator[list[dict[str, Any]]]:
    """Yield the rounds of a session: the user's messages with the answer."""
    messages = conversation.messages(session)
    starts = [number for number, one in enumerate(messages) if one["role"] == "user" or number == 0]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield messages[start:end]


def _say(conversation: Conversation, session: Session, messages: list[dict[str, Any]], *, contexts: bool) -> None:
    """Append a round like the API: the user's messages, a context for the answer, and the answer."""
    from sessions_app.models import UserProfile
    from sessions_app.transcript.append import NewMessage, append

    user = UserProfile.objects.ensure(conversation.id)
    for message in messages:
        said_at = datetime.fromisoformat(message["created_at"])
        if contexts and message["role"] == "assistant":
            _ask_for_context(user.user_id, f"s{session.n}")
        new = NewMessage(message["role"], message["content"], external_id=message["external_id"], created_at=said_at)
        append(user, f"s{session.n}", [new])


def _ask_for_context(user_id: str, session_id: str) -> None:
    from moments_app.context.assemble import ContextRequest, serve_context
    from sessions_app.models.application import DEFAULT

    serve_context(user_id, session_id, ContextRequest(), application=DEFAULT, retrieval="off")


def _note_told(conversation: Conversation, ledger: Ledger) -> None:
    from moments_app.reports.cost import estimate
    from sessions_app.models import UserProfile

    for part in estimate(UserProfile.objects.get(user_id=conversation.id), everything=True):
        spent = ledger.of(part.purpose)
        spent.told_calls, spent.told_tokens = part.calls, part.input_tokens


def purpose_of(body: dict[str, Any]) -> str:
    """Return the purpose of a request, as in the platform's records of calls."""
    if "input" in body:
        return "embedding"
    name: str = body["response_format"]["json_schema"]["name"]
    return name.replace("_", "-")


def _text(body: dict[str, Any]) -> str:
    if "input" in body:
        texts = body["input"]
        return texts if isinstance(texts, str) else "\n".join(texts)
    return "\n".join(message["content"] for message in body["messages"])


def _print(conversation: Conversation, ledger: Ledger) -> None:
    turns = sum(1 for _ in conversation.turns)
    columns = ["purpose", "calls", "instructions", "known", "turns", "schema", "input", "same beginning", "answers"]
    columns += ["estimate: calls", "estimate: input"]
    rows = [_row(purpose, spent, turns) for purpose, spent in sorted(ledger.spent.items())]
    written = [spent for purpose, spent in ledger.spent.items() if purpose != "embedding"]
    rows.append(_row("all but embedding", _sum(written), turns))
    print_markdown(f"{TITLE}: {conversation.id}, {turns} turns", columns, rows, NOTE)


def _sum(parts: Sequence[Spent]) -> Spent:
    totals = Counter[str]()
    for part in parts:
        totals.update(vars(part))
    return Spent(**totals)


def _row(purpose: str, spent: Spent, turns: int) -> list[str]:
    def each(count: int) -> str:
        return f"{round(count * EACH / turns):,}"

    share = f"{spent.repeated_tokens / spent.input_tokens:.0%}" if spent.input_tokens else ""
    return [
        purpose,
        each(spent.calls),
        each(spent.instruction_tokens),
        each(spent.known_tokens),
        each(spent.turn_tokens),
        each(spent.schema_tokens),
        each(spent.input_tokens),
        share,
        each(spent.output_tokens),
        each(spent.told_calls),
        each(spent.told_tokens),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
