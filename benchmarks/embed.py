"""Embedded texts per second, by the number of concurrent calls: `python -m benchmarks.embed`.

The endpoint is a test server in its own process. It takes `LATENCY` for each response, like a remote one. Each figure
is the time of `manage.py embed` for turns without a vector, from its first call to its last.
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
    """Returns the same vector for each text after a delay."""

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
        """Log nothing."""


def serve(port: "multiprocessing.Queue[int]") -> None:
    """Report the port, and serve until the process ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    port.put(server.server_port)
    server.serve_forever()


def measure(calls: int) -> float:
    """Return the turns embedded per second, with this number of concurrent calls."""
    from django.core.management import call_command

    from moments_app import engines
    from moments_app.models import EmbeddingModel

    EmbeddingModel.objects.all().delete()
    engines.MAX_CONCURRENT_CALLS = calls
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
