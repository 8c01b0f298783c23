"""A real HTTP server with OpenAI's API, including streams, that can be told to misbehave.

    with OpenAIServer() as server:
        server.queue(error(429, {"Retry-After": "7"}))   # the next response
        server.always(stall(5))                          # all responses after that

By default, it answers like a model: it parses the numbered turns in the request, and returns a moment for every twenty
or continues a rolling summary. Texts to embed get vectors that are close if the texts share words.
`python -m tests.support.openai_server` runs it alone.
"""

import argparse
import base64
import contextlib
import gzip
import hashlib
import json
import math
import random
import re
import struct
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from drill.provider import as_turn as as_turn
from drill.provider import labeled_of
from drill.provider import parts_of as parts_of
from drill.provider import turns_of as shown_turns
from tests.support.waiting import wait_until

TURNS_PER_MOMENT = 20
SUMMARY_JOINT = " / "
NATIVE_WIDTH = 1536  # the default width of vectors
STEM_LETTERS = 5

Behaviour = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path not in ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank"):
            return self.refuse(404, "unknown path")
        try:
            body = json.loads(data)
        except ValueError:
            return self.refuse(400, "the body is not JSON")
        self.server.owner.take(self, body)

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self.refuse(404, "unknown path")
        self.server.owner.models(self, {})

    def refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        """Send an error in OpenAI's format."""
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        self.send(status, json.dumps({"error": error}), headers)

    def send(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        """Send a complete response."""
        data = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            **(headers or {}),
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def complete(self, content: str | None, **choice: Any) -> None:
        """Send a chat completion or a response with this content."""
        if self.path == "/v1/responses":
            calls = choice.get("message", {}).get("tool_calls", ())
            return self.send(200, json.dumps(response_of(content, calls)))
        message = {"role": "assistant", "content": content, **choice.pop("message", {})}
        body = {
            "id": "chatcmpl-test",
            "object": "chat.completion",
            "created": 0,
            "model": "test-model",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
        self.send(200, json.dumps(body))

    def begin_stream(self) -> None:
        """Send the headers of an event stream of unknown length."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, data: str) -> None:
        """Send one event of a stream immediately."""
        self.chunk(f"data: {data}\n\n".encode())

    def chunk(self, data: bytes) -> None:
        """Send some bytes of a stream, without ending it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def say(self, finish_reason: str | None = None, **delta: Any) -> None:
        """Send a part of a completion."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        part = {"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 0, "model": "test-model"}
        self.event(json.dumps(part | {"choices": [choice]}))

    def tell(self, kind: str, **fields: Any) -> None:
        """Send an event of a response."""
        self.chunk(f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0} | fields)}\n\n".encode())

    def tell_response(self, texts: Sequence[str], calls: Sequence[dict[str, Any]] = (), pause: float = 0) -> None:
        """Send a response in parts, except its end."""
        self.tell("response.created", response=response_of(None) | {"status": "in_progress"})
        place = {"output_index": 0, "item_id": "msg_test", "content_index": 0}
        for number, text in enumerate(texts):
            time.sleep(pause if number else 0)
            self.tell("response.output_text.delta", delta=text, logprobs=[], **place)
        for number, item in enumerate(response_of("".join(texts) or None, calls)["output"]):
            self.tell("response.output_item.done", output_index=number, item=item)

    def end_response(self, response: dict[str, Any]) -> None:
        """Send the end of a response in parts."""
        self.tell("response.completed", response=response)
        self.chunk(b"")

    def end_stream(self) -> None:
        """Send the end of a completion in parts."""
        self.say("stop")
        self.event("[DONE]")
        self.chunk(b"")

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


POLL = 0.01  # interval of checks for the end


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: "OpenAIServer"

    def handle_error(self, *_: Any) -> None:
        """Ignore clients that hang up, which tests do on purpose."""


class OpenAIServer:
    """See the module's docstring.

    Args:
        port: The port. 0 is any free one.
    """

    def __init__(self, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), Handler)
        self._server.owner = self
        self._lock = threading.Lock()
        self._next: deque[Behaviour] = deque()
        self._default: Behaviour = answer_well
        self._open = threading.Event()
        self._open.set()
        self.requests: list[dict[str, Any]] = []
        self.models: Behaviour = list_models
        self.waiting = 0

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": POLL}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def queue(self, *behaviours: Behaviour) -> None:
        """Set the behavior for the next requests, in order."""
        self._next.extend(behaviours)

    def always(self, behaviour: Behaviour) -> None:
        """Set the behavior for requests without a queued one."""
        self._default = behaviour

    def hold(self) -> None:
        """Hold all responses until `release` is called."""
        self._open.clear()

    def release(self) -> None:
        """Send the responses that `hold` holds."""
        self._open.set()

    def wait_for_held(self, count: int) -> None:
        """Wait until this many requests are held."""
        wait_until(lambda: self.waiting >= count)

    def take(self, handler: Handler, body: dict[str, Any]) -> None:
        """Answer one request."""
        with self._lock:
            self.requests.append(body)
            behaviour = self._next.popleft() if self._next else self._default
            self.waiting += 1
        try:
            self._open.wait()
        finally:
            with self._lock:
                self.waiting -= 1
        behaviour(handler, body)


# --- behaviors ---


def answer_well(handler: Handler, body: dict[str, Any]) -> None:
    """Return the correct result, like a well-behaved model."""
    answer = json.dumps(right_answer(body), ensure_ascii=False)
    if "input" in body:
        handler.send(200, answer)
    else:
        handler.complete(answer)


def memories(*entries: dict[str, Any]) -> Behaviour:
    """Return the correct result, with these entries of streams as memories."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        right, own = right_answer(body), {"streams": list(entries)}
        handler.complete(json.dumps(right | {"memories": own} if "memories" in right else own))

    return behave


def list_models(handler: Handler, body: dict[str, Any]) -> None:
    """Return the list of models."""
    handler.send(200, json.dumps({"object": "list", "data": [{"id": "test-model", "object": "model"}]}))


def content(text: str | None, **choice: Any) -> Behaviour:
    """Return a completion with this content, whatever the request."""
    return lambda handler, body: handler.complete(text, **dict(choice))


def streamed(*texts: str, pause: float = 0, end: "Behaviour | None" = None) -> Behaviour:
    """Return a completion in parts.

    Args:
        texts: The parts.
        pause: The seconds before each part except the first.
        end: The behavior instead of a proper end.
    """

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.begin_stream()
        if handler.path == "/v1/responses":
            handler.tell_response(texts, pause=pause)
            return end(handler, body) if end else handler.end_response(response_of("".join(texts)))
        handler.say(role="assistant", content="")
        for number, text in enumerate(texts):
            time.sleep(pause if number else 0)
            handler.say(content=text)
        if end:
            return end(handler, body)
        handler.end_stream()

    return behave


def calls_tool(name: str, arguments: str, call_id: str = "call_1") -> Behaviour:
    """Return a tool call, either whole or as a stream with its arguments in two parts."""
    call = call_of(name, arguments, call_id)
    function = call["function"]

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        if not body.get("stream"):
            return handler.complete(None, message={"tool_calls": [call]}, finish_reason="tool_calls")
        handler.begin_stream()
        if handler.path == "/v1/responses":
            handler.tell_response([], [call])
            return handler.end_response(response_of(None, [call]))
        half = len(arguments) // 2
        handler.say(tool_calls=[call | {"index": 0, "function": function | {"arguments": arguments[:half]}}])
        handler.say(tool_calls=[{"index": 0, "function": {"arguments": arguments[half:]}}])
        handler.say("tool_calls")
        handler.event("[DONE]")
        handler.chunk(b"")

    return behave


def call_of(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    """Return a tool call in the format of chat completions."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def refusal(handler: Handler, body: dict[str, Any]) -> None:
    """Return a refusal in the format of structured outputs."""
    handler.complete(None, message={"refusal": "I can't help with that."})


def truncated(handler: Handler, body: dict[str, Any]) -> None:
    """Return the correct result, cut off at the model's limit."""
    text = json.dumps(right_answer(body))
    handler.complete(text[: len(text) // 2], finish_reason="length")


def raw(text: str, status: int = 200) -> Behaviour:
    """Return this body, whatever it is."""
    return lambda handler, body: handler.send(status, text)


def error(status: int, headers: dict[str, str] | None = None, detail: str = "test error") -> Behaviour:
    """Return an error in OpenAI's format."""
    return lambda handler, body: handler.refuse(status, detail, headers)


def stall(seconds: float, then: Behaviour = answer_well) -> Behaviour:
    """Wait, and then answer."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(seconds)
        then(handler, body)

    return behave


def drip(seconds: float, status: int = 200) -> Behaviour:
    """Send one byte at a time for some seconds."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.02)
        handler.close_connection = True

    return behave


def slow_headers(seconds: float) -> Behaviour:
    """Send a header from time to time for some seconds, but never a body."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            handler.wfile.write(b"X-More: 1\r\n")
            time.sleep(0.02)
        handler.close_connection = True

    return behave


def packed(text: str) -> Behaviour:
    """Return this body compressed, although the client did not ask for that."""
    data = gzip.compress(text.encode())

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return behave


def hang_up(handler: Handler, body: dict[str, Any]) -> None:
    """Close the connection without a response."""
    handler.close_connection = True
    handler.connection.close()


def only_formats(*known: str, then: Behaviour = answer_well) -> Behaviour:
    """Reject other response formats: `only_formats("json_object")`, or `only_formats()` to reject all."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        wanted = body.get("response_format", {}).get("type")
        if wanted and wanted not in known:
            error(400, detail=f"response_format {wanted} is not supported")(handler, body)
        else:
            then(handler, body)

    return behave


def embedding(change: Callable[[list[dict[str, Any]]], object]) -> Behaviour:
    """Return the correct vectors after `change`, which receives the response's entries."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        answer = embeddings_of(body)
        change(answer["data"])
        handler.send(200, json.dumps(answer))

    return behave


def out_of_order(handler: Handler, body: dict[str, Any]) -> None:
    """Return the correct vectors in reverse order."""
    embedding(lambda entries: entries.reverse())(handler, body)


def fewer_vectors(handler: Handler, body: dict[str, Any]) -> None:
    """Return the correct vectors except the last one."""
    embedding(lambda entries: entries.pop())(handler, body)


def of_width(width: int) -> Behaviour:
    """Return vectors of this width, whatever the request."""
    return lambda handler, body: answer_well(handler, body | {"dimensions": width})


def holding(value: Any) -> Behaviour:
    """Return the correct vectors, with this value in the middle of the last one: NaN, a huge number, or no number."""

    def change(entries: list[dict[str, Any]]) -> None:
        vector = entries[-1]["embedding"]
        vector[len(vector) // 2] = value

    return embedding(change)


def of_fixed_width(width: int, status: int = 400) -> Behaviour:
    """Reject requests that set a width. Vectors have this width."""

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        way = error(status, detail="unknown parameter: dimensions") if "dimensions" in body else of_width(width)
        way(handler, body)

    return behave


def fails_at_random(share: float, seed: int = 1, then: Behaviour = answer_well) -> Behaviour:
    """Misbehave in some way in this share of the requests. The same seed gives the same sequence."""
    chance = random.Random(seed)
    lock = threading.Lock()
    ways = [error(500), error(429), hang_up, content(""), content("null"), truncated, raw("garbage"), refusal]

    def behave(handler: Handler, body: dict[str, Any]) -> None:
        with lock:
            way = chance.choice(ways) if chance.random() < share else then
        way(handler, body)

    return behave


# --- results of a well-behaved model ---


def response_of(text: str | None, calls: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return a response with this text and these tool calls, which have the format of chat completions."""
    content: list[Any] = [{"type": "output_text", "text": text, "annotations": []}]
    said = {"type": "message", "id": "msg_test", "role": "assistant", "status": "completed", "content": content}
    called = [
        {"type": "function_call", "id": "fc_test", "status": "completed", "call_id": call["id"]} | call["function"]
        for call in calls
    ]
    return {
        "id": "resp_test",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": "test-model",
        "output": [*([said] if text is not None else []), *called],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 120,
        },
    }


def turns_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns in a request."""
    return shown_turns(body["messages"][1]["content"])


def right_answer(body: dict[str, Any]) -> dict[str, Any]:
    """Return the result in the requested format."""
    if "input" in body:
        return embeddings_of(body)
    asked = body["messages"][1]["content"]
    if parts := parts_of(asked):
        return {name: right_answer(body | {"messages": asking(body, text)}) for name, text in parts.items()}
    if asked.startswith("Message to answer: "):
        return query_of(body)
    if "Summary so far: " in asked:
        return summary_of(body)
    if asked.startswith(("Known from before", "Context: at most")):
        return digest_of(body)
    if asked.startswith("Stream: "):
        return memories_of(body)
    return consolidated(body) if asked.startswith("Instructions for the text: ") else moments_of(body)


def asking(body: dict[str, Any], text: str) -> list[dict[str, str]]:
    """Return the messages of a request with another question."""
    system, _asked, *others = body["messages"]
    return [system, {"role": "user", "content": text}, *others]


def query_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the longest word of the conversation before the message, or nothing for a greeting."""
    message = json.loads(body["messages"][1]["content"].splitlines()[0].partition(": ")[2])
    words = [word.strip(".,?!") for turn in turns_of(body) for word in turn["text"].split()]
    return {"query": "" if message.startswith("Hello") else max(words, key=len, default="")}


def digest_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the earlier text and the last turn as context, with one lesson for the window."""
    found = re.search(r"^Known from before these turns: (.*)$", body["messages"][1]["content"], re.M)
    known, last = json.loads(found[1]) if found else "", turns_of(body)[-1]
    return {
        "context": f"{known} Last said: {last['text'][:200]}".strip(),
        "lessons": [f"Answer at once when somebody says: {last['text'][:80]}"],
    }


def memories_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return a fact for each of the last turns in each stream, and a preference in all except a session's."""
    turns = turns_of(body)
    sections = [
        json.loads(line[8:]) for line in body["messages"][1]["content"].splitlines() if line.startswith("Stream: ")
    ]

    def items(stream: str) -> list[str]:
        kinds = {"facts": "event"} if stream == "session" else {"observations": "preference", "facts": "event"}
        return [
            f"{kind} {turn['index']}: {stream} {name}: {turn['text'][:80]}"
            for name, kind in kinds.items()
            for turn in turns[-2:]
        ]

    return {"streams": [{"stream": one["stream"], "statements": items(one["stream"])} for one in sections]}


def consolidated(body: dict[str, Any]) -> dict[str, Any]:
    """Return the lines so far and the observations, one per line."""
    return {"lines": [{"text": part["text"], "carries": [part["label"]]} for part in labeled(body)]}


def labeled(body: dict[str, Any]) -> list[dict[str, str]]:
    """Return the lines so far and the observations in a consolidation request."""
    return [{"label": label, "text": text} for label, text in labeled_of(body["messages"][1]["content"])]


def summary_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the summary so far, with a part per turn of the window, and a fact for each new turn."""
    asked, turns = body["messages"][1]["content"], turns_of(body)
    start = int(re.search(r"window begins at turn (\d+)", asked)[1])  # type: ignore[index]
    told = json.loads(re.search(r"^Summary so far: (.*)$", asked, re.M)[1])  # type: ignore[index]
    parts = told.split(SUMMARY_JOINT) if told else []
    kept = parts[max(len(parts) - (turns[0]["index"] - start), 0) :] if turns[0]["index"] > start else []
    new = [{"fact": turn["text"][:60], "message_indexes": [turn["index"]]} for turn in turns]
    return {"summary_text": SUMMARY_JOINT.join([*kept, *(fact["fact"] for fact in new)]), "facts": new}


def moments_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return a moment for every twenty turns, named and tagged by their most common words."""
    turns = turns_of(body)
    moments = [_moment(turns[start : start + TURNS_PER_MOMENT]) for start in range(0, len(turns), TURNS_PER_MOMENT)]
    return {"moments": moments}


def _moment(turns: list[dict[str, Any]]) -> dict[str, Any]:
    words = Counter(re.findall(r"[^\W\d_]{4,}", " ".join(turn["text"] for turn in turns).lower()))
    common = [word[:30] for word, _ in sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))[:3]] or ["talk"]
    return {
        "name": "-".join(common),
        "summary": f"They spoke of {', '.join(common)}.",
        "detail": " ".join(turn["text"][:60] for turn in turns[:2]),
        "topic_tags": common,
        "emotion_tags": [],
        "present_persons": [],
        "starts_at_message_idx": turns[0]["index"],
        "ends_at_message_idx": turns[-1]["index"],
    }


def embeddings_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return a vector for each text."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [vector_of(text, body.get("dimensions", NATIVE_WIDTH)) for text in texts]
    packed = body.get("encoding_format") == "base64"
    tokens = sum(len(text.split()) for text in texts)
    return {
        "object": "list",
        "model": "test-model",
        "data": [
            {"object": "embedding", "index": index, "embedding": _as_base64(vector) if packed else vector}
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def vector_of(text: str, width: int) -> list[float]:
    """Return a vector of length 1 from a text's words. Each stem adds to one dimension, or subtracts from it."""
    vector = [0.0] * width
    for stem in {word[:STEM_LETTERS] for word in re.findall(r"\w+", text.lower())}:
        number = int.from_bytes(hashlib.blake2b(stem.encode(), digest_size=8).digest())
        vector[number // 2 % width] += len(stem) if number % 2 else -len(stem)
    if not any(vector):
        vector[0] = 1.0
    length = math.hypot(*vector)
    return [value / length for value in vector]


def _as_base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8098)
    parser.add_argument("--fail-share", type=float, default=0.0)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with OpenAIServer(options.port) as server:
        server.always(stall(options.latency_ms / 1000, fails_at_random(options.fail_share, options.seed)))
        sys.stdout.write(f"Speaking the OpenAI protocol at {server.base_url}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
