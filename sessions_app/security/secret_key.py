"""Signatures and encryption with `SECRET_KEY`: ids of contexts, and texts. `SECRET_KEY_FALLBACKS` has the old keys.

**Ids of contexts** prove that a context was served for a session. An id must be verifiable without a table, because the
receipt of a context is written only after the response, and because a context may be requested before its session
exists. So a part of the id is a signature of the other part and of the ids of the application, the person and the
session.

**Encrypted texts** can't be read in a dump of the database, or in a backup without the key. A text is compressed, and
then encrypted with AES-256-GCM and a key derived from `SECRET_KEY`. The encryption also authenticates the id of the
text's row, so a text that is moved to another row can't be decrypted. If an old key is lost, only texts encrypted with
it can no longer be read.
"""

import hmac
import json
import os
import zlib
from collections.abc import Iterator
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils.crypto import salted_hmac

from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal

_ID_SALT = "sessions_app.context_ids"
_RANDOM_BYTES = 10  # random bytes of an id; the rest of its 16 bytes is the signature
# The bits with the variant and the version of a UUID. Version 8 leaves the other bits to the application.
_FIXED = 0xF << 76 | 0x3 << 62
_VERSION_8 = 0x8 << 76 | 0x2 << 62
_SALT = "sessions_app.sealed"  # the keys of all stored texts are derived with this, so it must never change
_NONCE_BYTES = 12
_LEVEL = 1  # compression level; higher levels gain little, because contexts are repetitive


class UnknownContext(Refusal):
    """No context with this `context_id` was served for the session."""

    code = "unknown_context"

    def __init__(self) -> None:
        super().__init__("No context with this context_id was served for this session.")


def new_context_id(user: UserProfile, session_id: str) -> UUID:
    """Return an id for a context of a session, which may not exist yet."""
    return _signed(os.urandom(_RANDOM_BYTES), user, session_id, settings.SECRET_KEY)


def check_context_id(context_id: UUID, user: UserProfile, session_id: str) -> None:
    """Raise UnknownContext if the id doesn't belong to a context of this session."""
    drawn = context_id.bytes[:_RANDOM_BYTES]
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    if not any(hmac.compare_digest(_signed(drawn, user, session_id, key).bytes, context_id.bytes) for key in secrets):
        raise UnknownContext


def _signed(drawn: bytes, user: UserProfile, session_id: str, secret: str) -> UUID:
    # The version and variant bits overwrite some random bits, so the signature excludes them.
    number = int.from_bytes(drawn.ljust(16, b"\0")) & ~_FIXED
    named = json.dumps([f"{number:x}", user.application_id, user.user_id, session_id])
    signature = salted_hmac(_ID_SALT, named, secret=secret, algorithm="sha256").digest()
    signed = number | int.from_bytes(signature[: 16 - _RANDOM_BYTES])
    return UUID(int=signed & ~_FIXED | _VERSION_8)


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
