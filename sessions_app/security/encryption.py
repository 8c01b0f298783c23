"""Encrypt texts with `SECRET_KEY`. `SECRET_KEY_FALLBACKS` has the old keys.

Encrypted texts can't be read in a dump of the database, or in a backup without the key. A text is compressed, and then
encrypted with AES-256-GCM and a key derived from `SECRET_KEY`. The encryption also authenticates the id of the text's
row, so a text that is moved to another row can't be decrypted. If an old key is lost, only texts encrypted with it can
no longer be read.
"""

import os
import zlib
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils.crypto import salted_hmac

_SALT = "sessions_app.sealed"  # the keys of all stored texts are derived with this, so it must never change
_NONCE_BYTES = 12
_LEVEL = 1  # compression level; higher levels gain little, because contexts are repetitive


def seal(text: bytes, about: str) -> bytes:
    """Encrypt a text. `about` is an id of the text's row. Decryption requires the same id."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + next(_ciphers()).encrypt(nonce, zlib.compress(text, _LEVEL), about.encode())


def unseal(sealed: bytes | memoryview, about: str) -> bytes | None:
    """Decrypt a text. Return None if no configured key fits, or if `about` is different."""
    nonce, rest = bytes(sealed[:_NONCE_BYTES]), bytes(sealed[_NONCE_BYTES:])
    for cipher in _ciphers():
        try:
            return zlib.decompress(cipher.decrypt(nonce, rest, about.encode()))
        except InvalidTag:
            continue
    return None


def _ciphers() -> Iterator[AESGCM]:
    """Yield a cipher for each key, the current one first."""
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        yield AESGCM(salted_hmac(_SALT, "", secret=secret, algorithm="sha256").digest())
