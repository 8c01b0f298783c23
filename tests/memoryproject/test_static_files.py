"""Static files under hashed names, and how long browsers keep them."""

import re
from typing import Any

import pytest
from django.templatetags.static import static
from pytest_django.fixtures import Settings

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def as_served(settings: Settings) -> None:
    settings.WHITENOISE_AUTOREFRESH = False  # which other tests have, and `DEBUG`


PLAIN = "/static/memoryproject/favicon.svg"


def test_a_page_refers_to_files_by_their_content_and_browsers_keep_them_for_ever(client: Any) -> None:
    page = client.get("/admin/login/").content.decode()
    named = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))
    assert named
    for address in named:
        assert re.search(r"\.[0-9a-f]{12}\.\w+$", address), address
        answer = client.get(address)
        assert answer.status_code == 200
        assert answer["Cache-Control"] == "max-age=315360000, public, immutable", address


def test_a_plain_name_and_one_of_another_release_lead_to_the_file_and_are_not_kept(client: Any) -> None:
    hashed = static("memoryproject/favicon.svg")
    content = b"".join(client.get(hashed))
    for address in (PLAIN, PLAIN.replace(".svg", f".{'0' * 12}.svg")):
        answer = client.get(address)
        assert (answer.status_code, b"".join(answer)) == (200, content)
        assert answer["Cache-Control"] == "max-age=60, public"


def test_what_is_no_file_is_not_found_and_has_no_address(client: Any) -> None:
    assert client.get("/static/memoryproject/nothing.css").status_code == 404
    assert client.get("/static/../manage.py").status_code == 404
    assert static("memoryproject/nothing.css") == "/static/memoryproject/nothing.css"
