"""Encrypted texts."""

from pytest_django.fixtures import Settings

from sessions_app.security.encryption import seal, unseal

TEXT = b"Ada restores harpsichords. " * 20


def test_a_sealed_text_can_be_unsealed_and_reveals_nothing() -> None:
    sealed = seal(TEXT, "context 1")
    assert unseal(sealed, "context 1") == TEXT
    assert b"harpsichord" not in sealed
    assert seal(TEXT, "context 1") != sealed


def test_a_moved_or_changed_sealed_text_cannot_be_unsealed() -> None:
    sealed = seal(TEXT, "context 1")
    assert unseal(sealed, "context 2") is None
    assert unseal(sealed[:-1] + bytes([sealed[-1] ^ 1]), "context 1") is None


def test_a_former_secret_key_still_unseals_a_text(settings: Settings) -> None:
    sealed, former = seal(TEXT, "context 1"), settings.SECRET_KEY
    settings.SECRET_KEY = "another"
    assert unseal(sealed, "context 1") is None
    settings.SECRET_KEY_FALLBACKS = [former]
    assert unseal(sealed, "context 1") == TEXT
    assert unseal(seal(TEXT, "x"), "x") == TEXT
