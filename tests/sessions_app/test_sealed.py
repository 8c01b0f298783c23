"""Texts that are kept encrypted."""

from pytest_django.fixtures import Settings

from sessions_app.security.encryption import seal, unseal

TEXT = b"Ada restores harpsichords. " * 20


def test_a_sealed_text_is_read_again_and_shows_nothing() -> None:
    sealed = seal(TEXT, "context 1")
    assert unseal(sealed, "context 1") == TEXT
    assert b"harpsichord" not in sealed
    assert seal(TEXT, "context 1") != sealed


def test_it_is_not_read_in_another_place_nor_if_it_was_changed() -> None:
    sealed = seal(TEXT, "context 1")
    assert unseal(sealed, "context 2") is None
    assert unseal(sealed[:-1] + bytes([sealed[-1] ^ 1]), "context 1") is None


def test_a_former_key_still_opens_it_and_without_it_nothing_fails(settings: Settings) -> None:
    sealed, former = seal(TEXT, "context 1"), settings.SECRET_KEY
    settings.SECRET_KEY = "another"
    assert unseal(sealed, "context 1") is None
    settings.SECRET_KEY_FALLBACKS = [former]
    assert unseal(sealed, "context 1") == TEXT
    assert unseal(seal(TEXT, "x"), "x") == TEXT
