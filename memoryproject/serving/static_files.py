"""Static files whose names contain a hash of their content, so browsers cache them forever.

`collectstatic` isn't needed. The hashes are computed when a process starts, which takes a twentieth of a second. If a
page of another release requests an old name, the current file is returned.
"""

import hashlib
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

HASH_CHARS = 12


@cache
def hashed_name(name: str) -> str:
    """Return a file's name with the hash of its content. If there is no such file, return the name unchanged."""
    path = finders.find(name)
    if not path:
        return name
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:HASH_CHARS]
    plain = PurePosixPath(name)
    return str(plain.with_name(f"{plain.stem}.{digest}{plain.suffix}"))


class HashedStaticFiles(StaticFilesStorage):
    def url(self, name: str | None) -> str:
        return super().url(hashed_name(name) if name else name)


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # which has no types
    """Serves each file under both its plain and its hashed name. Browsers may cache the hashed one forever."""

    def add_file_to_dictionary(self, url: str, path: str, stat_cache: Any = None) -> None:
        hashed = hashed_name(url.removeprefix(self.static_prefix))
        for one in (url, f"{self.static_prefix}{hashed}"):
            super().add_file_to_dictionary(one, path, stat_cache=stat_cache)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        address = request.path_info
        if address.startswith(self.static_prefix) and address not in self.files:
            request.path_info = self.get_name_without_hash(address)
        answer: HttpResponseBase = super().__call__(request)
        return answer
