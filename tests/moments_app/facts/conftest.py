"""A year of conversations, for the tests of facts."""

import pytest

from sessions_app.models import UserProfile
from tests.support.kept_rows import KeptRows
from tests.support.lives import told_a_life


@pytest.fixture
def life(transactional_db: None, forming: None, kept_rows: KeptRows) -> UserProfile:
    """Ada, whose moves, jobs and child are remembered."""
    kept_rows.have("life", lambda: told_a_life(UserProfile.objects.ensure("ada")))
    return UserProfile.objects.get(user_id="ada")
