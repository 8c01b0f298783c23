"""Texts that are kept encrypted: a dump of the database, or a backup without its key, doesn't show them.

A sealed text is compressed, then encrypted by AES-256-GCM under a key that is derived from `SECRET_KEY`. What it is
about is part of the seal, so that a text that is moved to another row can't be read there. After a change of
`SECRET_KEY`, texts stay readable as long as the former key is among `SECRET_KEY_FALLBACKS`; without it they are lost,
and nothing else is.
"""

import os
import zlib
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils.crypto import salted_hmac

_SALT = "sessions_app.sealed"
_NONCE_BYTES = 12
_LEVEL = 1  # of compression: contexts repeat themselves, so that more of it gains little


def seal(text: bytes, about: str) -> bytes:
    """Return a text sealed.

    Args:
        text: the text, encoded.
        about: names what it belongs to; needed to open it.
    """
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + next(_ciphers()).encrypt(nonce, zlib.compress(text, _LEVEL), about.encode())


def unseal(sealed: bytes | memoryview, about: str) -> bytes | None:
    """Return the text that was sealed; None when no key that is set opens it, or it is about something else."""
    nonce, rest = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
    for cipher in _ciphers():
        try:
            return zlib.decompress(cipher.decrypt(nonce, rest, about.encode()))
        except InvalidTag:
            continue
    return None


def _ciphers() -> Iterator[AESGCM]:
    """Yield a cipher for each key, the one in force first."""
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        yield AESGCM(salted_hmac(_SALT, "", secret=secret, algorithm="sha256").digest())
