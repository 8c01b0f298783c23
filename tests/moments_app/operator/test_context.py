"""How the admin shows a context."""

import pytest
from django.test import Client

from moments_app.context.receipts import StoredLayer, StoredLine
from moments_app.operator.addresses import Pages
from moments_app.operator.views.context import BAR, shown_layers
from sessions_app.models import Session, UserProfile
from tests.moments_app.operator.test_context_receipt import served
from tests.support.moments import remember
from tests.support.pages import change_url, page

pytestmark = pytest.mark.django_db(transaction=True)


def test_layers_share_the_bar_and_lines_link_to_pages(ada: UserProfile) -> None:
    layers = [
        StoredLayer("user", 30, [StoredLine("Ada.", 3, ada.uri)]),
        StoredLayer("query", 10, [StoredLine("Hello?", 2)]),
    ]
    user, query = shown_layers(layers, Pages(ada, [ada.uri]), 80)
    assert [(layer.start, layer.width, layer.share) for layer in (user, query)] == [
        (0, BAR * 3 // 8, 37.5),
        (BAR * 3 // 8, BAR // 8, 12.5),
    ]
    assert [line.source.url for layer in (user, query) for line in layer.lines] == [change_url(ada), ""]


def test_an_unknown_layer_is_left_out(ada: UserProfile) -> None:
    layers = [StoredLayer("no_more", 30, []), StoredLayer("hot_turns", 10, [])]
    assert [layer.name for layer in shown_layers(layers, Pages(ada, []), 40)] == ["hot turns"]


def test_a_layer_has_the_same_color_after_any_layers(root: Client, ada: UserProfile) -> None:
    remember(ada, 1)
    shown = page(root, change_url(served(Session.objects.get())))
    assert 'rem-layer-3" x="0"' in shown  # moments, which have the fourth color
