"""Statements that PostgreSQL plans only once per connection."""

import pytest
from django.db import connection

from sessions_app.database.sql import prepared_cursor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not connection.settings_dict.get("EMBEDDED"), reason="only the embedded server has no pooler"),
]

DOUBLE = "SELECT %(number)s::int * 2"


def test_a_statement_is_prepared_once_for_all_its_values() -> None:
    assert [doubled(number) for number in (1, 2, 3)] == [2, 4, 6]
    assert prepared() == ["SELECT $1::int * 2"]


def test_no_statement_is_prepared_behind_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    monkeypatch.delitem(connection.settings_dict, "EMBEDDED")
    assert doubled(1) == 2
    assert prepared() == []


def doubled(number: int) -> int:
    with prepared_cursor() as cursor:
        cursor.execute(DOUBLE, {"number": number})
        [(result,)] = cursor.fetchall()
    return int(result)


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%::int * 2'")
        return [statement for (statement,) in cursor.fetchall()]
