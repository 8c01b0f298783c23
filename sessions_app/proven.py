"""The keys and logins that have proven right in this process: whoever has one is no stranger, whatever neighbors do.

With the key of a further application goes which one it is, for what must not ask the database: whoever is not known is
taken for one of the first. Only hashes are kept, and those used last.
"""

import hashlib
import threading
from collections import OrderedDict

MOST = 50_000


class Proven:
    """Secrets that were found right, and not found wrong since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._applications: OrderedDict[bytes, int | None] = OrderedDict()

    def add(self, secret: str, application: int | None = None) -> None:
        """Note that a secret is right.

        Args:
            secret: a key, or a login.
            application: the primary key of a key's; None for the first one, and for a login.
        """
        with self._lock:
            self._applications[hash_of(secret)] = application
            self._applications.move_to_end(hash_of(secret))
            if len(self._applications) > MOST:
                self._applications.popitem(last=False)

    def drop(self, secret: str) -> None:
        """Note that a secret is wrong, or no longer right."""
        with self._lock:
            self._applications.pop(hash_of(secret), None)

    def application_of(self, secret: str) -> int | None:
        """Return the primary key of a key's application; None for the first one, and where it isn't known."""
        return self._applications.get(hash_of(secret))

    def __contains__(self, secret: str) -> bool:
        return hash_of(secret) in self._applications


def hash_of(secret: str) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


PROVEN = Proven()
