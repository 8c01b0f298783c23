"""A connection lost during a request results in 503 and never in 404."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from moments_app.models.stream import USER_DEFAULTS, MemoryStream
from sessions_app.models import UserProfile
from tests.support.api import Api
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

CONNECTING = ("host", "port", "user", "password", "dbname")


class Loss:
    """Terminates the server process of a connection before one of the statements of a request.

    Args:
        before: the number of the statement, from 0.
    """

    def __init__(self, before: int) -> None:
        self._before = before
        self.statements = 0

    @contextmanager
    def happening(self, other: "psycopg.Connection[Any]") -> Iterator[None]:
        def count(execute: Callable[..., Any], *arguments: Any) -> Any:
            if self.statements == self._before:
                process = arguments[-1]["cursor"].cursor.connection.info.backend_pid
                assert other.execute("SELECT pg_terminate_backend(%s, 20000)", [process]).fetchone() == (True,)
            self.statements += 1
            return execute(*arguments)

        with connection.execute_wrapper(count):
            yield
        connection.close()


@pytest.fixture
def other(transactional_db: None) -> Iterator["psycopg.Connection[Any]"]:
    """A second connection."""
    known = connection.get_connection_params()
    address: dict[str, Any] = {name: known.get(name) for name in CONNECTING}
    with psycopg.connect(make_conninfo(**address), autocommit=True) as other:
        yield other


@pytest.fixture
def calls(service: Api, ada: UserProfile) -> dict[str, Callable[[], Any]]:
    """Requests for existing rows, one for each way to set a role."""
    talk(ada, 2, session_id="s1")
    stream = MemoryStream.objects.create(stream_type="user", agent_id="default", user=ada, **vars(USER_DEFAULTS))
    said = {"user_id": "ada", "atom_type": "observation", "content": "Nora lives in Oslo."}
    atoms = f"streams/{stream.stream_id}/atoms"
    written = service.post(atoms, said).json()["atom_id"]
    return {
        "a person's read": lambda: service.get(f"facts/{written}", user_id="ada"),
        "a person's write": lambda: service.post(atoms, said | {"content": "Nora sails."}),
        "a search": lambda: service.post("memory/search", user_id="ada", query="Oslo"),
        "past policies": lambda: service.post(
            "retractions", user_id="ada", atom_ids=[written], reason="x", preview=True
        ),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a person's read", "a person's write", "a search", "past policies"])
def test_a_request_gets_503_if_its_connection_is_lost_before_any_statement(
    calls: dict[str, Callable[[], Any]], other: "psycopg.Connection[Any]", name: str
) -> None:
    answers: list[int] = []
    while not answers or answers[-1] == 503:
        loss = Loss(before=len(answers))
        with loss.happening(other):
            answers.append(calls[name]().status_code)
    assert answers[-1] in (200, 201) and len(answers) == loss.statements + 1 > 2
