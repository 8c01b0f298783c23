"""Encryption with a passphrase: AES-256-GCM. scrypt derives the key from the passphrase and a random salt."""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

_SALT_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32
_COST = {"n": 2**17, "r": 8, "p": 1}  # 128 MB of memory, as the OWASP password storage cheat sheet recommends


class WrongPassphrase(Exception):
    """The passphrase is not the one that encrypted the text, or the text is damaged."""


def encrypt(text: bytes, passphrase: str) -> bytes:
    """Encrypt a text. Its salt and its nonce precede the result."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    return salt + nonce + _cipher(passphrase, salt).encrypt(nonce, text, None)


def decrypt(encrypted: bytes, passphrase: str) -> bytes:
    """Decrypt a text.

    Raises:
        WrongPassphrase: The passphrase is wrong, or the text is damaged.
    """
    salt, rest = encrypted[:_SALT_BYTES], encrypted[_SALT_BYTES:]
    try:
        return _cipher(passphrase, salt).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], None)
    except InvalidTag:
        raise WrongPassphrase from None


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt, length=_KEY_BYTES, **_COST).derive(passphrase.encode()))
