"""Static files under hashed names, and how long browsers keep them."""

import re
from typing import Any

import pytest
from django.templatetags.static import static
from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def as_served(settings: Settings) -> None:
    settings.WHITENOISE_AUTOREFRESH = False  # set in other tests, as is `DEBUG`


PLAIN = "/static/memoryproject/favicon.svg"


def test_pages_link_to_hashed_names_which_browsers_cache_permanently(client: Any) -> None:
    page = client.get("/admin/login/").content.decode()
    named = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))
    assert named
    for address in named:
        assert re.search(r"\.[0-9a-f]{12}\.\w+$", address), address
        answer = client.get(address)
        assert answer.status_code == 200
        assert answer["Cache-Control"] == "max-age=315360000, public, immutable", address


def test_plain_names_and_names_of_other_releases_return_the_file_with_a_short_cache_time(client: Any) -> None:
    hashed = static("memoryproject/favicon.svg")
    content = b"".join(client.get(hashed))
    for address in (PLAIN, PLAIN.replace(".svg", f".{'0' * 12}.svg")):
        answer = client.get(address)
        assert (answer.status_code, b"".join(answer)) == (200, content)
        assert answer["Cache-Control"] == "max-age=60, public"


def test_an_unknown_file_is_404_and_has_no_hashed_name(client: Any) -> None:
    assert client.get("/static/memoryproject/nothing.css").status_code == 404
    assert client.get("/static/../manage.py").status_code == 404
    assert static("memoryproject/nothing.css") == "/static/memoryproject/nothing.css"
