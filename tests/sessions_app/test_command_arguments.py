"""Commands reject blank and invalid arguments with a sentence that names the argument, and change nothing."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sessions_app.models import ApiKey, UserProfile

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("user_id", ["", "a/b", "..", "x" * 256])
def test_a_key_for_an_invalid_user_id_is_not_created(transactional_db: None, user_id: str) -> None:
    """An empty shell variable makes the user_id blank. A key for all users must not be created."""
    with pytest.raises(CommandError, match=r"^--user: "):
        call_command("create_api_key", "mine", "--user", user_id)
    assert not ApiKey.objects.exists() and not UserProfile.objects.exists()


@pytest.mark.parametrize("name", ["", " ", "x" * 256])
def test_the_name_of_a_key_has_1_to_255_characters(transactional_db: None, name: str) -> None:
    with pytest.raises(CommandError, match="The name must have 1 to 255 characters"):
        call_command("create_api_key", name)
    assert not ApiKey.objects.exists()


def test_a_blank_user_id_or_month_is_not_ignored(ada: UserProfile) -> None:
    with pytest.raises(CommandError, match="no user ''"):
        call_command("estimate", "--user", "")
    with pytest.raises(CommandError, match="--month must look like"):
        call_command("restore_archive", "ada", "s1", "--month", "")


def test_an_import_names_the_invalid_option(transactional_db: None) -> None:
    with pytest.raises(CommandError, match=r"^--user: An id can't contain a slash"):
        call_command("import_sessions", "README.md", "--format", "jsonl", "--user", "a/b")
