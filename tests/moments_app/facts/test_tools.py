"""Facts in time over MCP: each tool as the server runs it, for the person of its connection only."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from moments_app.interfaces.mcp import server
from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.models import MemoryAtom
from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.lives import BERGEN, CHILD, DATES, MAYA, OSLO, STAVANGER, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


@pytest.fixture(autouse=True)
def connected(transactional_db: None) -> Iterator[None]:
    token = CURRENT.set(Connection("ada", "default", "key:test", "write", DEFAULT))
    yield
    CURRENT.reset(token)


def used(tool: str, *arguments: Any, **named: Any) -> Any:
    """Return the answer of a tool."""
    return asyncio.run(getattr(server, tool)(*arguments, **named))


def texts(answer: dict[str, Any]) -> list[str]:
    return [fact["content"] for fact in answer["facts"]][::-1]


@pytest.mark.slow
def test_tools_return_facts_as_of_a_day_and_of_an_attribute(life: UserProfile) -> None:
    assert texts(used("list_facts", as_of="2025-06-01")) == DATES["2025-06-01"]
    homes = texts(used("list_facts", attribute="home", state="all"))
    assert homes == [OSLO, BERGEN, STAVANGER]


@pytest.mark.slow
def test_tools_search_and_return_contexts_as_of_a_time(life: UserProfile) -> None:
    asked = "Does the user live in Oslo, Bergen or Stavanger?"
    found = used("search_long_term_memory", asked, memory_types=["fact"], as_of="2025-06-01")
    assert found["results"][0]["content"] == BERGEN
    context = used("get_context", "Where do I live?", "on-2025-11-05", as_of="2025-01-15")["context"]
    assert OSLO in context and "Bergen" not in context and "Stavanger" not in context
    with pytest.raises(ToolError, match="as_of"):
        used("list_facts", as_of="long ago")


@pytest.mark.slow
def test_tools_correct_end_and_undo_a_fact(ada: UserProfile) -> None:
    say(ada, "s1", *CHILD[0])
    [fact] = used("list_facts")["facts"]
    right = "User: My daughter is called Mia."
    assert used("correct_fact", fact["fact_id"], right, preview=True)["correction_id"] is None
    made = used("correct_fact", fact["uri"], right)
    assert texts(used("list_facts")) == [right]
    assert used("undo_correction", str(made["correction_id"]))["undone_at"]
    assert texts(used("list_facts")) == [MAYA]
    used("end_fact", fact["fact_id"])
    assert texts(used("list_facts")) == [] and texts(used("list_facts", state="ended")) == [MAYA]


def test_row_9_tools_cannot_access_a_fact_of_another_person(ada: UserProfile, bo: UserProfile) -> None:
    say(bo, "s1", *CHILD[0])
    theirs = str(MemoryAtom.objects.get().atom_id)
    with pytest.raises(ToolError):
        used("correct_fact", theirs, "x")
    for fact_id in (theirs, "x"):
        with pytest.raises(ToolError):
            used("end_fact", fact_id)
    assert texts(used("list_facts")) == [] and MemoryAtom.objects.get().state == "active"
