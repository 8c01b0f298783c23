"""Texts embedded a second, by calls under way at a time: `python -m benchmarks.embed`.

The endpoint is a stand-in in a process of its own that takes `LATENCY` for any answer, as one elsewhere does. Each
figure is `manage.py embed` over turns that have no vector yet, from its first call to its last.
"""

import json
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from typing import Any

from benchmarks.site import NOTHING_DUE, Site

LATENCY = 0.2  # seconds
TURNS, BATCH, WIDTH = 4_000, 100, 384
AT_ONCE = (1, 4, 8)


class Endpoint(BaseHTTPRequestHandler):
    """Answers each text with the same vector, after a while."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        time.sleep(LATENCY)
        vector = [0.05] * WIDTH
        data = json.dumps({"data": [{"index": n, "embedding": vector} for n in range(len(texts))]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(port: "multiprocessing.Queue[int]") -> None:
    """Serve until the process is ended, and tell the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    port.put(server.server_port)
    server.serve_forever()


def measure(calls: int) -> float:
    """Return the turns embedded a second, with so many calls at a time."""
    from django.core.management import call_command

    from moments_app import engines
    from moments_app.models import EmbeddingModel

    EmbeddingModel.objects.all().delete()
    engines.CALLS_AT_ONCE = calls
    EmbeddingModel.objects.in_use()
    began = time.monotonic()
    call_command("embed", stdout=StringIO())
    return TURNS / (time.monotonic() - began)


def main() -> None:
    """Print the figures."""
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    endpoint = multiprocessing.Process(target=serve, args=(port,), daemon=True)
    endpoint.start()
    base_url = f"http://127.0.0.1:{port.get()}/v1"
    texts = {"PROVIDER": "openai", "BASE_URL": base_url, "DIMENSIONS": str(WIDTH), "BATCH_SIZE": str(BATCH)}
    with Site(NOTHING_DUE | {f"EMBEDDING__{name}": value for name, value in texts.items()}):
        from sessions_app.models import UserProfile
        from sessions_app.transcript.append import NewMessage, append

        ada = UserProfile.objects.ensure("ada")
        said = [NewMessage("user", f"Today I fired the kiln at {n} degrees.") for n in range(TURNS)]
        for start in range(0, TURNS, 500):
            append(ada, "s1", said[start : start + 500])
        for calls in AT_ONCE:
            print(f"{calls} at a time: {measure(calls):,.0f} texts/s")
    endpoint.terminate()


if __name__ == "__main__":
    main()
