"""The keys and logins that this process found right. A request with one of them isn't throttled with its address.

For a key of a further application, the application is known too, without asking the database. Only hashes are kept.
"""

import hashlib

from sessions_app.process_cache import ProcessCache

MOST = 50_000


class Proven:
    """Secrets that were found right, and not found wrong since."""

    def __init__(self) -> None:
        self._applications: ProcessCache[bytes, int | None] = ProcessCache(MOST)

    def add(self, secret: str, application: int | None = None) -> None:
        """Note that a secret is right.

        Args:
            secret: a key, or a login.
            application: the primary key of a key's; None for the first one, and for a login.
        """
        self._applications.put(hash_of(secret), application)

    def drop(self, secret: str) -> None:
        """Note that a secret is wrong, or no longer right."""
        self._applications.drop(hash_of(secret))

    def application_of(self, secret: str) -> int | None:
        """Return the primary key of a key's application; None for the first one, and if it isn't known."""
        return self._applications.get(hash_of(secret))

    def __contains__(self, secret: str) -> bool:
        return hash_of(secret) in self._applications


def hash_of(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


PROVEN = Proven()
