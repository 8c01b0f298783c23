"""Encrypted texts, which a dump of the database, or a backup without its key, doesn't show.

A text is compressed, then encrypted with AES-256-GCM and a key derived from `SECRET_KEY`. The encryption also
authenticates the id of its row, so a text that is moved to another row can't be decrypted. After a change of
`SECRET_KEY`, texts stay readable as long as the old key is in `SECRET_KEY_FALLBACKS`. Without it, only these texts are
lost.
"""

import os
import zlib
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils.crypto import salted_hmac

_SALT = "sessions_app.sealed"  # of the keys of all stored texts, so it never changes
_NONCE_BYTES = 12
_LEVEL = 1  # of compression; contexts repeat themselves, so higher levels gain little


def seal(text: bytes, about: str) -> bytes:
    """Encrypt a text.

    Args:
        about: An id of the text's row. It is required for decryption.
    """
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
