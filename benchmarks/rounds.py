"""Benchmark of the prompts of a long conversation: `python -m benchmarks.rounds [PICTURE.svg]`.

OpenAI's client talks for 300 rounds and sends the whole conversation with each call, like most applications. Only its
base URL is the platform's. The benchmark counts the tokens that reach the model, and prints a table and a chart.
"""

import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from benchmarks.figures import print_markdown
from benchmarks.site import Site
from memoryproject.demo import CONVERSATION
from sessions_app.text.length import estimate_tokens
from tests.support.openai_server import OpenAIServer, content

ROUNDS = 300
THRESHOLDS = (250, 80)  # turns that make a build due: the default, and a value for smaller prompts
SHOWN = (1, 50, 100, 150, 200, 250, 300)  # rounds in the table
TIMEOUT = 60  # maximum seconds for the jobs of a round
TITLE = "Prompt tokens of a long conversation"
NOTE = (
    "Estimated tokens of the messages that the model receives, by round. Without: the client's whole conversation. "
    "With: the same calls through the chat endpoint. The row name shows after how many turns moments are built. Other "
    "settings have their defaults. Each round is sent after the previous one is stored and its jobs are done."
)


@dataclass(frozen=True)
class HeldConversation:
    """A simulated conversation.

    Args:
        name: The name of the variant.
        tokens: The tokens of each call's messages.
        replaced: The number of the client's messages that memory replaced in each call.
        moments: The number of moments that were built.
    """

    name: str
    tokens: list[int]
    replaced: list[int]
    moments: int


def main(arguments: list[str]) -> int:
    with Site() as site, OpenAIServer() as model:
        held = [_hold(site, model, threshold) for threshold in THRESHOLDS]
    without = HeldConversation("without", list(_growing()), [0] * ROUNDS, 0)
    rounds = [shown for shown in SHOWN if shown <= ROUNDS]
    columns = ["mode", *map(str, rounds), "maximum", "moments"]
    print_markdown(TITLE, columns, [_row(one, rounds) for one in [without, *held]], NOTE)
    if arguments:
        _draw([without, *held], Path(arguments[0]))
    return 0


def _hold(site: Site, model: OpenAIServer, threshold: int) -> HeldConversation:
    """Simulate the conversation through the endpoint."""
    from moments_app.models import Moment
    from sessions_app.models import Session

    settings = {"MOMENT_BUILDER__MESSAGE_THRESHOLD": str(threshold), "CHAT__UPSTREAM_BASE_URL": model.base_url}
    name = f"rounds-{threshold}"
    headers = {"X-User-Id": name, "X-Session-Id": name}
    port = site.serve(**settings)
    tokens, replaced, history = [], [], []
    with (
        site.working(**settings),
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=site.key, default_headers=headers) as client,
    ):
        for said, answer in itertools.islice(_rounds(), ROUNDS):
            history.append(_message("user", said))
            model.queue(content(answer))
            got = client.chat.completions.with_raw_response.create(model="any", messages=history)
            history.append(_message("assistant", answer))
            tokens.append(_tokens(model.requests[-1]["messages"]))
            replaced.append(int(got.headers["X-Memory-Replaced"]))
            _wait_until_done(name, len(history))
    session = Session.objects.get(session_id=name)
    assert session.message_count == 2 * ROUNDS
    return HeldConversation(
        f"with, moments after {threshold} turns",
        tokens,
        replaced,
        Moment.objects.filter(source_session=session).count(),
    )


def _rounds() -> Iterator[tuple[str, str]]:
    """Yield both sides of the demonstration's conversation in an endless loop, one round at a time."""
    lines = [json.loads(line) for line in CONVERSATION.read_text(encoding="utf-8").splitlines()]
    texts = {role: [line["content"] for line in lines if line["role"] == role] for role in ("user", "assistant")}
    pairs = itertools.cycle(zip(texts["user"], texts["assistant"], strict=False))
    for number, (said, answer) in enumerate(pairs, start=1):
        yield f"{said} ({number})", f"{answer} ({number})"


def _growing() -> Iterator[int]:
    """Yield the tokens of each call without the platform."""
    history: list[Any] = []
    for said, answer in itertools.islice(_rounds(), ROUNDS):
        history.append(_message("user", said))
        yield _tokens(history)
        history.append(_message("assistant", answer))


def _message(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def _tokens(messages: Sequence[dict[str, Any]]) -> int:
    return sum(estimate_tokens(message["content"]) for message in messages)


def _wait_until_done(session_id: str, turns: int) -> None:
    from moments_app.models import Job
    from sessions_app.models import Session

    deadline = time.monotonic() + TIMEOUT
    own = Session.objects.filter(session_id=session_id, message_count=turns)
    while not own.exists() or Job.objects.open().filter(session__session_id=session_id).exists():
        assert time.monotonic() < deadline, f"turn {turns} is not stored, or its jobs are not done"
        time.sleep(0.02)


def _row(held: HeldConversation, rounds: Sequence[int]) -> list[str]:
    shown = [f"{held.tokens[number - 1]:,}" for number in rounds]
    return [held.name, *shown, f"{max(held.tokens):,}", f"{held.moments:,}"]


def _draw(held: Sequence[HeldConversation], path: Path) -> None:
    import pygal
    from pygal.style import CleanStyle

    chart = pygal.XY(
        title=TITLE, x_title="round", y_title="tokens", show_dots=False, legend_at_bottom=True, js=[], style=CleanStyle
    )
    for one in held:
        chart.add(one.name, list(enumerate(one.tokens, start=1)))
    chart.render_to_file(str(path))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
