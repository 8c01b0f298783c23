"""Settings that are sent before a statement, if it can't include them or they must come first."""

import pytest
from django.db import connection, transaction
from psycopg import sql

from sessions_app.database.database_roles import ADMIN_ROLE
from sessions_app.database.transactions import (
    ADMIN,
    SNAPSHOT,
    Deadline,
    RequestKind,
    using_deadline,
    using_role,
    using_timeouts,
)
from sessions_app.limited_operators import OPERATOR_ROLE, acting_as_limited_operator
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT

pytestmark = pytest.mark.django_db(transaction=True)

STATE = "current_user || ' ' || current_setting('lock_timeout')"


@pytest.mark.parametrize("is_atomic", [False, True])
def test_row_9_repeated_and_composed_statements_run_with_role_and_limits(ada: UserProfile, is_atomic: bool) -> None:
    sessions = Session.objects.bulk_create(Session(user=ada, session_id=f"s{n}") for n in range(2))
    update = f"UPDATE sessions_app_session SET title = {STATE} WHERE id = %s"
    composed = sql.SQL(f"SELECT {STATE}, %s")
    with using_role(ADMIN), using_timeouts(RequestKind.CALL):
        for session in sessions:
            if is_atomic:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.executemany(update, [[session.pk]])
            else:
                with connection.cursor() as cursor:
                    cursor.executemany(update, [[session.pk]])
        with connection.cursor() as cursor:
            cursor.execute(composed, [1])
            [state, one] = cursor.fetchone() or ("", 0)
    assert {state, *Session.objects.values_list("title", flat=True)} == {f"{ADMIN_ROLE} 1min"}
    assert one == 1


def test_row_43_a_composed_statement_is_limited_to_the_remaining_time() -> None:
    ends = Deadline(60)
    with using_deadline(ends), using_timeouts(RequestKind.CALL), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT")
        ends._at -= 55
        cursor.execute(sql.SQL("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'"))
        [milliseconds] = cursor.fetchone() or [0]
    assert 0 < milliseconds <= 5_000


def test_a_snapshot_is_taken_before_setting_a_role_that_needs_a_query() -> None:
    with (
        acting_as_limited_operator(1, [DEFAULT]),
        using_timeouts(RequestKind.CALL),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(SNAPSHOT)
        cursor.execute(f"SELECT {STATE}, current_setting('transaction_isolation')")
        assert cursor.fetchone() == (f"{OPERATOR_ROLE} 1min", "repeatable read")


def test_nothing_is_sent_before_a_statement_outside_requests() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user = session_user, current_setting('lock_timeout')")
        assert cursor.fetchone() == (True, "0")
