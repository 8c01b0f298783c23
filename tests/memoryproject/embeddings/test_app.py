"""The HTTP API of the embedded embeddings server."""

import base64
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from memoryproject.embeddings import UNREACHABLE, read_address
from memoryproject.embeddings.queue import MAX_DOCUMENTS
from tests.support.embeddings import post, serving
from tests.support.small_model import WIDTH, write_model
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow(seconds=5)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server whose model knows a few words."""
    folder = tmp_path_factory.mktemp("embeddings")
    with serving(folder, str(write_model(folder / "small"))):
        yield read_address(folder)


def test_vectors_are_returned_in_order_as_floats_or_base64(url: str) -> None:
    status, body = post(url, model="small", input=["car", "piano"], dimensions=WIDTH)
    assert (status, body["model"], body["usage"]["total_tokens"]) == (200, "small", 2)
    car, piano = (entry["embedding"] for entry in body["data"])
    assert car[0] > 0.9 and piano[1] > 0.9
    [packed] = post(url, input="car", encoding_format="base64")[1]["data"]
    assert struct.unpack("<3f", base64.b64decode(packed["embedding"])) == pytest.approx(car)


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"input": []}, 400, "input"),
        ({"input": [1]}, 400, "input"),
        ({}, 400, "input"),
        ({"input": "a", "input_type": "poem"}, 400, "input_type"),
        ({"input": "a", "dimensions": 4}, 400, "small only has vectors with 3"),
        ({"input": "a", "model": "large"}, 404, "this server only serves small"),
        ({"input": "x" * 8_000_001}, 413, "8,000,000 bytes"),
    ],
)
def test_an_invalid_request_gets_an_error_with_the_reason(
    url: str, body: dict[str, object], status: int, told: str
) -> None:
    found, answer = post(url, **body)
    assert found == status
    assert told in answer["error"]["message"]


def test_the_server_removes_its_address_at_exit_and_reports_a_model_that_cannot_be_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path, str(write_model(tmp_path / "small"))) as process:
        assert psutil.Process(process.pid).num_threads() <= 4
    assert read_address(tmp_path) == UNREACHABLE
    with pytest.raises(AssertionError), serving(tmp_path, str(tmp_path / "missing")):
        pass
    assert "The embeddings model can't be loaded" in capfd.readouterr().err


def test_a_full_document_queue_answers_429_and_does_not_block_queries(url: str) -> None:
    with ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(post, url, input=["The car is warm again."] * MAX_DOCUMENTS) for _ in range(2)]
        assert post(url, input=["car"], input_type="query")[0] == 200
        answers = dict(each.result() for each in asked)
    assert answers.keys() == {200, 429}
    assert "Too many texts are waiting" in answers[429]["error"]["message"]


def test_a_request_that_is_waiting_when_the_server_stops_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as process, ThreadPoolExecutor(1) as client:
        server = psutil.Process(process.pid)
        started = sum(server.cpu_times()[:2])
        asked = client.submit(post, read_address(tmp_path), input=["The kiln is warm again. " * 100] * 500)
        wait_until(lambda: sum(server.cpu_times()[:2]) > started + 1)  # it computes vectors
        process.terminate()
        assert asked.result()[0] == 503
        process.wait()
    assert "Traceback" not in capfd.readouterr().err
