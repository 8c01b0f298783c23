"""What it takes to add a layer: one is added here from outside."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from moments_app.context import receipts
from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import LAYERS, Layer, add_layer
from moments_app.models import ContextReceipt
from sessions_app.admin.links import page_url
from sessions_app.api import fields
from sessions_app.models import Session, UserProfile
from tests.support import contract
from tests.support.api import Api
from tests.support.operator import operator
from tests.support.pages import change_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def _forget_choices() -> None:
    """Build the input serializers and the schema again."""
    fields._validator.cache_clear()
    contract._description.cache_clear()


@pytest.fixture
def own_layers() -> Iterator[None]:
    """Remove the layers that a test adds."""
    before = dict(LAYERS)
    _forget_choices()
    yield
    LAYERS.clear()
    LAYERS.update(before)
    _forget_choices()


def context(api: Api, **query: Any) -> Any:
    answer = api.get("memory/context", user_id="ada", session_id="s1", **query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def layer(found: Any, name: str) -> list[str]:
    return [item["text"] for one in found["layers"] if one["name"] == name for item in one["items"]]


@pytest.mark.usefixtures("own_layers")
class TestALayer:
    """One edit adds a layer: its module, which calls `add_layer`."""

    @pytest.fixture
    def session(self, ada: UserProfile) -> Session:
        def items(source: ContextInput) -> list[Item]:
            return [Item(f"It rains where {source.user.user_id} lives.")]

        add_layer(Layer("weather", items, place=25, tag="Weather", title="The weather", ceiling=0.10))
        return talk(ada, 2)

    def test_it_is_in_contexts_of_every_format(self, session: Session, service: Api) -> None:
        names = [one["name"] for one in context(service)["layers"]]
        assert names[names.index("user") : names.index("moments") + 1] == ["user", "weather", "moments"]
        said = "It rains where ada lives."
        assert layer(context(service), "weather") == [said]
        assert f"<Weather>\n- {said}\n</Weather>" in context(service, format="xml")["context"]
        assert f"## The weather\n- {said}" in context(service, format="markdown")["context"]
        assert said in str(context(service, format="messages")["context"])
        assert layer(context(service, layers="weather"), "weather") == [said]
        assert layer(context(service, layers="user"), "weather") == []

    def test_it_is_limited_to_its_share_of_the_budget(self, session: Session, service: Api) -> None:
        def items(source: ContextInput) -> list[Item]:
            return [Item(f"It rained on day {day}.") for day in range(500)]

        add_layer(Layer("climate", items, place=26, tag="Climate", title="The climate", ceiling=0.10))
        found = context(service, max_tokens=1_000, plan="stable")
        [taken] = [one for one in found["layers"] if one["name"] == "climate"]
        assert 0 < taken["tokens"] <= 100
        assert any(part["layer"] == "climate" for part in found["trimmed"])

    def test_operators_see_it(self, session: Session, service: Api, settings: Settings) -> None:
        settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"receipt_days": 1})
        root = operator()
        assert "It rains where ada lives." in page(root, page_url(Session, "context", session.pk))
        context(service)
        receipts.waiting.flush()
        assert "weather" in page(root, change_url(ContextReceipt.objects.get()))
