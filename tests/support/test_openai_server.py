"""Tests of the test server itself."""

import base64
import json
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.openai_server import OpenAIServer, answer_well, error, fails_at_random, turns_of, vector_of

TURN = json.dumps({"0 user": "kilns and glazes", "time": "2026-03-02 08:00"})
BODY = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": TURN}]}


def post(base_url: str, body: object = BODY, path: str = "/chat/completions") -> tuple[int, Any]:
    asked = urllib.request.Request(f"{base_url}{path}", json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_a_completion_has_moments_of_the_turns_and_usage() -> None:
    with OpenAIServer() as server:
        status, completion = post(server.base_url)
        answer = json.loads(completion["choices"][0]["message"]["content"])
        assert (status, answer["moments"][0]["topic_tags"]) == (200, ["glazes", "kilns"])
        assert completion["usage"]["total_tokens"] == 120
        shown = {"index": 0, "role": "user", "text": "kilns and glazes", "time": "2026-03-02 08:00"}
        assert turns_of(server.requests[0]) == [shown]


def test_models_are_listed_and_other_paths_are_unknown() -> None:
    with OpenAIServer() as server:
        with urllib.request.urlopen(f"{server.base_url}/models") as response:
            assert json.load(response)["data"][0]["id"] == "test-model"
        assert post(server.base_url, path="/completions")[0] == 404
        assert server.requests == []


def test_vectors_have_the_requested_width_and_encoding() -> None:
    with OpenAIServer() as server:
        asked = {"model": "m", "input": ["kilns and glazes", "a bicycle"], "dimensions": 64}
        status, answer = post(server.base_url, asked, "/embeddings")
        vectors = [entry["embedding"] for entry in answer["data"]]
        assert (status, [entry["index"] for entry in answer["data"]]) == (200, [0, 1])
        assert [len(vector) for vector in vectors] == [64, 64]
        assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
        packed = post(server.base_url, asked | {"encoding_format": "base64"}, "/embeddings")[1]["data"][0]["embedding"]
        assert struct.unpack("<64f", base64.b64decode(packed)) == pytest.approx(vectors[0])
        [native] = post(server.base_url, {"model": "m", "input": "kilns"}, "/embeddings")[1]["data"]
        assert len(native["embedding"]) == 1536


def test_texts_that_share_words_have_close_vectors() -> None:
    def nearness(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(vector_of(one, 1536), vector_of(other, 1536), strict=True))

    asked = "Which glazes did the potter use?"
    assert nearness(asked, "The potters glazed it blue.") > 0.5 > 0.2 > nearness(asked, "The bicycle has a flat tyre.")
    assert [nearness(asked, asked.upper()), nearness("?!", "…")] == pytest.approx([1, 1])


def test_queued_behaviors_apply_once_before_the_usual_one() -> None:
    with OpenAIServer() as server:
        server.queue(error(500), error(429))
        server.always(error(418))
        assert [post(server.base_url)[0] for _ in range(4)] == [500, 429, 418, 418]


def test_random_failures_depend_only_on_the_seed() -> None:
    def seen(seed: int) -> list[int]:
        with OpenAIServer() as server:
            server.always(fails_at_random(0.5, seed, then=error(418)))
            return [status_of(server) for _ in range(30)]

    def status_of(server: OpenAIServer) -> int:
        try:
            return post(server.base_url)[0]
        except (OSError, ValueError):
            return 0

    assert seen(3) == seen(3) != seen(4)


@pytest.mark.slow
def test_hundreds_of_held_requests_are_all_answered() -> None:
    with OpenAIServer() as server, ThreadPoolExecutor(300) as pool:
        server.hold()
        answers = [pool.submit(post, server.base_url) for _ in range(300)]
        server.wait_for_held(300)
        server.release()
        assert {answer.result()[0] for answer in answers} == {200}
        assert len(server.requests) == 300


def test_the_server_stops_at_once_with_open_requests() -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(10) as pool:
        with OpenAIServer() as server:
            server.always(lambda handler, body: answer_well(handler, body) if go_on.wait(30) else None)
            answers = [pool.submit(post, server.base_url) for _ in range(10)]
            while len(server.requests) < 10:
                time.sleep(0.01)
        assert not any(answer.done() for answer in answers)
        go_on.set()


@pytest.mark.slow
@pytest.mark.parametrize(("share", "statuses"), [("0", {200}), ("0.6", {200, 429, 500})])
def test_the_server_runs_from_the_command_line(share: str, statuses: set[int]) -> None:
    command = [sys.executable, "-m", "tests.support.openai_server", "--port", "0", "--fail-share", share, "--seed", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base_url = process.stdout.readline().split()[-1]
            seen = set()
            for _ in range(30):
                try:
                    seen.add(post(base_url)[0])
                except (OSError, ValueError):
                    assert share != "0"
            assert seen == statuses
        finally:
            process.terminate()
