"""API keys and logins that this process has verified. Requests with one of them skip the anonymous rate limit.

The cache also has the application of a key, unless it is the first one. It stores only hashes.
"""

import hashlib

from sessions_app.process_cache import ProcessCache

MOST = 50_000


class Proven:
    """Verified secrets."""

    def __init__(self) -> None:
        self._applications: ProcessCache[bytes, int | None] = ProcessCache(MOST)

    def add(self, secret: str, application: int | None = None) -> None:
        """Add a verified secret.

        Args:
            secret: A key or a login.
            application: The primary key of a key's application. None for the first one, and for a login.
        """
        self._applications.put(hash_of(secret), application)

    def drop(self, secret: str) -> None:
        """Remove a secret that is no longer valid."""
        self._applications.drop(hash_of(secret))

    def application_of(self, secret: str) -> int | None:
        """Return the primary key of a key's application. None for the first application, and for an unknown key."""
        return self._applications.get(hash_of(secret))

    def __contains__(self, secret: str) -> bool:
        return hash_of(secret) in self._applications


def hash_of(secret: str) -> bytes:
    """Return the hash that is stored of a secret."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


PROVEN = Proven()
