"""Context ids, which prove the session that they were issued for."""

from uuid import uuid4

import pytest
from pytest_django.fixtures import Settings

from sessions_app.models import UserProfile
from sessions_app.models.session import UnknownContext, check_context_id, new_context_id

ADA = UserProfile(user_id="ada", application_id=1)


def test_an_id_is_valid_only_for_its_session() -> None:
    context_id = new_context_id(ADA, "s1")
    check_context_id(context_id, ADA, "s1")
    assert context_id.version == 8 and new_context_id(ADA, "s1") != context_id
    for wrong in (context_id, uuid4()):
        with pytest.raises(UnknownContext):
            check_context_id(wrong, ADA, "s2")


@pytest.mark.parametrize(
    "other", [UserProfile(user_id="bo", application_id=1), UserProfile(user_id="ada", application_id=2)]
)
def test_an_id_is_not_valid_for_another_person(other: UserProfile) -> None:
    with pytest.raises(UnknownContext):
        check_context_id(new_context_id(ADA, "s1"), other, "s1")


def test_an_id_issued_under_a_former_secret_key_is_valid(settings: Settings) -> None:
    context_id, former = new_context_id(ADA, "s1"), settings.SECRET_KEY
    settings.SECRET_KEY = "another"
    with pytest.raises(UnknownContext):
        check_context_id(context_id, ADA, "s1")
    settings.SECRET_KEY_FALLBACKS = [former]
    check_context_id(context_id, ADA, "s1")
