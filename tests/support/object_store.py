"""An S3 server: moto over HTTP, with a log of requests, and configurable errors."""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKET = "archives"
KEYS = {"aws_access_key_id": "AKIAEXAMPLE", "aws_secret_access_key": "example"}
_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class ObjectStore:
    """See the module's docstring.

    `asked` has the method, path and range of each request. `broken` lists methods that get a 503.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.broken: set[str] = set()
        self._moto: _App = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **KEYS)
        self.client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.empty()
        self.close()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def empty(self) -> None:
        """Remove everything, because moto shares its data between all servers of this process."""
        urlopen(Request(f"{self.url}/moto-api/reset", method="POST")).close()

    def settings(self) -> dict[str, str]:
        """Return the settings of an installation with this archive storage."""
        return {
            "EXTRAS": "importers,lab,oauth,scale",
            "RETENTION__S3_BUCKET": BUCKET,
            "RETENTION__S3_ENDPOINT_URL": self.url,
            "RETENTION__S3_ACCESS_KEY": KEYS["aws_access_key_id"],
            "RETENTION__S3_SECRET_KEY": KEYS["aws_secret_access_key"],
            "RETENTION__S3_PREFIX": "memory",
        }

    def names(self) -> list[str]:
        """Return the names of all objects, including earlier versions."""
        found = self.client.list_object_versions(Bucket=BUCKET)
        return sorted(each["Key"] for each in found.get("Versions", []) + found.get("DeleteMarkers", []))

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        self.asked.append((method, environ["PATH_INFO"], environ.get("HTTP_RANGE")))
        if method in self.broken:
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        return self._moto(environ, start)
