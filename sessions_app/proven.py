"""The keys and logins that have proven right in this process: whoever has one is no stranger, whatever neighbors do.

Only their hashes are kept, and those that were used last.
"""

import hashlib
import threading
from collections import OrderedDict

MOST = 50_000


class Proven:
    """Secrets that were found right, and not found wrong since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def add(self, secret: str) -> None:
        """Note that a secret is right."""
        with self._lock:
            self._hashes[_hash(secret)] = None
            self._hashes.move_to_end(_hash(secret))
            if len(self._hashes) > MOST:
                self._hashes.popitem(last=False)

    def drop(self, secret: str) -> None:
        """Note that a secret is wrong, or no longer right."""
        with self._lock:
            self._hashes.pop(_hash(secret), None)

    def __contains__(self, secret: str) -> bool:
        return _hash(secret) in self._hashes


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()


PROVEN = Proven()
