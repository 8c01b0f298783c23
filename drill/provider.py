"""A model endpoint with the necessary parts of OpenAI's API, which fails on request."""

import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from drill.ledger import marks_in

LATENCY = 0.15  # simulated duration of a call, so that workers can be found at work
SHAPES = {"moments": "moment_builder", "memories": "memory_extraction"}  # the tasks of combined calls
FENCE = "<<<TRANSCRIPT"
_LABELED = re.compile(r'\{"[LO]\d+": ', re.IGNORECASE)
_TURN = re.compile(r'\{"(\d+) (user|assistant|tool)": ')
PARTS = 6  # of a streamed answer
PART_SECONDS = 0.02
MOMENT_TURNS = 20
QUOTED = 100  # characters of a turn to quote in a result

Json = dict[str, Any]
Failure = Callable[[str], int | None]  # maps the body of a request to an error status
Answer = Callable[[str], Json]  # maps a request of the memory engine to its result
Reply = Callable[[Json], str]  # maps a chat request to the answer's text


class Provider:
    """The endpoint. It runs while its `with` block runs.

    `failure` returns the error status of each request, or None.

    Args:
        answers: The results for the memory engine, by name of the requested schema. Default: those of the drill.
        reply: The answers to chats.
        latency: The simulated duration of a call in seconds. Default: that of the drill.
    """

    def __init__(
        self,
        answers: "Mapping[str, Answer] | None" = None,
        reply: "Reply | None" = None,
        latency: float | None = None,
    ) -> None:
        self.failure: Failure = no_failure
        self.answers = ANSWERS if answers is None else answers
        self.reply = reply or _reply
        self.latency = LATENCY if latency is None else latency
        self.calls = 0
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._counting = threading.Lock()

    @property
    def base_url(self) -> str:
        """The URL for the settings."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def count(self) -> None:
        with self._counting:
            self.calls += 1

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def no_failure(_body: str) -> None:
    """Reject nothing."""


def refusing(status: int) -> Failure:
    """Reject everything."""
    return lambda _body: status


def refusing_text(text: str, status: int) -> Failure:
    """Reject every request with this text."""
    return lambda body: status if text in body else None


def failing_by_chance(text: str, share: float, seed: int) -> Failure:
    """Fail every request with this text, and a random share of all others."""
    chance = random.Random(seed)  # noqa: S311 (decides on no secret)
    return lambda body: 500 if text in body or chance.random() < share else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    provider: Provider

    def handle_error(self, *_: Any) -> None:
        """Ignore errors of killed clients."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.provider.count()
        time.sleep(self.server.provider.latency)
        status = self.server.provider.failure(text)
        if status:
            return self._send({"error": {"message": "The drill has this refused."}}, status)
        body: Json = json.loads(text)
        if self.path.endswith("/embeddings"):
            return self._send(_embeddings(body))
        provider = self.server.provider
        if self.path.endswith("/responses"):
            text = provider.reply({"messages": _messages(body["input"])})
            return self._stream_response(text) if body.get("stream") else self._send(_response(text))
        if body.get("stream"):
            return self._stream(provider.reply(body))
        text = _answer(body, provider.answers) if "response_format" in body else provider.reply(body)
        return self._send(_completion("message", text))

    def do_GET(self) -> None:
        self._send({"object": "list", "data": []})

    def _send(self, answer: Json, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, text: str) -> None:
        deltas = [json.dumps(_completion("delta", part, None)) for part in _parts(text)]
        self._events([*deltas, json.dumps(_completion("delta", "")), "[DONE]"])

    def _stream_response(self, text: str) -> None:
        deltas = [{"type": "response.output_text.delta", "delta": part} for part in _parts(text)]
        end = {"type": "response.completed", "response": _response(text)}
        self._events([json.dumps(event) for event in (*deltas, end)])

    def _events(self, events: Sequence[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            self._event(event)
            time.sleep(PART_SECONDS)
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _completion(kind: str, text: str, finish_reason: str | None = "stop") -> Json:
    choice = {"index": 0, kind: {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return {"id": "drill", "object": "chat.completion", "created": 0, "model": "drill", "choices": [choice]}


def _response(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "drill", "role": "assistant", "status": "completed", "content": [part]}
    whole = {"id": "drill", "object": "response", "created_at": 0, "status": "completed", "model": "drill"}
    return whole | {"output": [item]}


def _messages(items: Any) -> list[Json]:
    """Convert the input of a response to messages."""
    return [{"role": "user", "content": items}] if isinstance(items, str) else [i for i in items if "content" in i]


def _parts(text: str) -> list[str]:
    size = max(len(text) // PARTS, 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _reply(body: Json) -> str:
    """Answer the person's last message with its mark."""
    said = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
    return f"Understood: {' '.join(marks_in(said[-1])) if said else 'nothing'} is noted, and more will follow."


# --- results for the memory engine, by name of the requested schema, supported by the turns ---


def _answer(body: Json, answers: Mapping[str, Answer]) -> str:
    asked = body["messages"][1]["content"]
    name = body["response_format"].get("json_schema", {}).get("name", "")
    parts = parts_of(asked).items()
    answer = {part: answers[SHAPES[task_of(part)]](text) for part, text in parts} or answers[name](asked)
    return json.dumps(answer)


def parts_of(asked: str) -> dict[str, str]:
    """Return the tasks of a combined request by name, each as a separate request. Empty for other requests."""
    known, fence, transcript = asked.partition(f"\n{FENCE}")
    parts: dict[str, str] = {}
    given: dict[str, str] = {}
    if not fence or not known.startswith("# "):
        return parts
    for task in re.split(r"^# ", known, flags=re.M)[1:]:
        name, _, own = task.partition("\n")
        given[task_of(name)] = text = given.get(task_of(name), "") + own
        span = re.search(r"^Turns: (\d+) to (\d+)\.$", own, re.M)
        about = range(int(span[1]), int(span[2]) + 1) if span else None
        lines = [(as_turn(line), line) for line in transcript.splitlines()]
        turns = [line for turn, line in lines if turn and (about is None or turn["index"] in about)]
        parts[name] = "\n".join([text.strip(), FENCE, *turns])
    return parts


def task_of(part: str) -> str:
    """Return the task name of a part of a combined request, without the number of the conversation."""
    return part.partition("_")[0]


def labeled_of(asked: str) -> list[tuple[str, str]]:
    """Return the lines and observations of a consolidation request, each with its label."""
    found = (json.loads(line) for line in asked.splitlines() if _LABELED.match(line))
    return [part for one in found for part in one.items()]


def turns_of(asked: str) -> list[Json]:
    """Return the turns in a request, with their index, role, text and other fields."""
    return [turn for line in asked.splitlines() if (turn := as_turn(line))]


def as_turn(line: str) -> Json | None:
    """Return the turn in a line of a request, or None."""
    found = _TURN.match(line)
    if not found:
        return None
    shown = json.loads(line)
    text = shown.pop(f"{found[1]} {found[2]}")
    return {"index": int(found[1]), "role": found[2], "text": text, **shown}


def _moments(asked: str) -> Json:
    turns = turns_of(asked)
    windows = [turns[start : start + MOMENT_TURNS] for start in range(0, len(turns), MOMENT_TURNS)]
    moments = [
        {
            "name": f"drill-{hashlib.sha256(window[0]['text'].encode()).hexdigest()[:8]}",
            "summary": f"First: {window[0]['text'][:QUOTED]}",
            "starts_at_message_idx": window[0]["index"],
            "ends_at_message_idx": window[-1]["index"],
        }
        for window in windows
    ]
    return {"moments": moments, "user_summary_update": "Takes part in a drill."}


def _summary(asked: str) -> Json:
    last = turns_of(asked)[-1]
    return {"summary_text": f"At last: {last['text'][:QUOTED]}", "facts": []}


def _memories(asked: str) -> Json:
    sections = [json.loads(line[8:]) for line in asked.splitlines() if line.startswith("Stream: ")]
    last = turns_of(asked)[-1]
    said = f"Said in the drill: {last['text'][:QUOTED]}"
    items = [f"{kind} {last['index']}: {said}" for kind in ("event", "preference")]
    return {"streams": [{"stream": section["stream"], "statements": items} for section in sections]}


def _consolidated(asked: str) -> Json:
    return {"lines": [{"text": text, "carries": [label]} for label, text in labeled_of(asked)]}


ANSWERS: Mapping[str, Answer] = {
    "moment_builder": _moments,
    "rolling_summary": _summary,
    "memory_extraction": _memories,
    "stream_consolidation": _consolidated,
    "session_digest": lambda asked: {"context": "A drill goes on.", "lessons": []},
    "recall_query": lambda asked: {"query": "drill"},
}


def _embeddings(body: Json) -> Json:
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [_vector(text, body.get("dimensions", 1536)) for text in texts]
    data = [{"object": "embedding", "index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return {"object": "list", "model": "drill", "data": data}


def _vector(text: str, width: int) -> list[float]:
    """Return a deterministic vector of a text's words."""
    vector = [0.0] * width
    for word in set(re.findall(r"\w+", text.lower())) or {""}:
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % width] += 1.0
    return vector
