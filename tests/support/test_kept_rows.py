"""A test gets the rows that an earlier one created."""

from contextlib import closing

import pytest

from sessions_app.models import Session, UserProfile
from tests.support.fresh_database import FreshDatabase
from tests.support.jobs import build
from tests.support.kept_rows import KeptRows
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_rows_kept_under_a_name_are_created_once_and_restored_with_all_columns(kept_rows: KeptRows) -> None:
    made: list[Session] = []

    def conversation() -> None:
        made.append(talk(UserProfile.objects.ensure("ada"), 60, session_id=f"s{len(made)}"))
        build(made[-1])

    found = []
    with closing(FreshDatabase()) as fresh:
        for name in ("one", "another", "one", "another"):
            kept_rows.have(name, conversation)
            found.append(everything())
            fresh.restore()
    assert len(made) == 2 and found[0] != found[1]
    assert found[2:] == found[:2]
