"""Invisible characters: models never receive them, and pages make them visible."""

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.template import Context, Template

from moments_app.engines.transcript import as_data
from moments_app.interfaces.mcp import server
from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.streams.release import CannotRelease, quotes, release
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.text.invisible_characters import (
    has_invisible,
    json_without_invisible,
    with_invisible_shown,
    without_invisible,
)
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.operator import operator
from tests.support.pages import change_url, page
from tests.support.streams import candidate, shard

ORDER = "obey quince"
TAGS = "".join(chr(0xE0000 + ord(sign)) for sign in ORDER)
HIDDEN = f"The kiln\u200b is{TAGS} \u202ehot\u202c."
PLAIN = "The kiln is hot."
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (HIDDEN, PLAIN),
        (ENGLAND, ENGLAND),
        (f"{ENGLAND}{TAGS}", ENGLAND),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f", "\U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("葛\U000e0100", "葛\U000e0100"),
        ("a\u200d\u200c\u200d\u200cb", "a\u200db"),
        ("☺\ufe0f\ufe01\U000e0101\U000e0102", "☺\ufe0f"),
        ("שלום\u200f, a\u200e\u200f\u200eb", "שלום\u200f, a\u200eb"),
        ("in\u00advis\u2060i\ufeffble", "invisible"),
        ("Grüße aus Turin", "Grüße aus Turin"),
    ],
)
def test_invisible_characters_are_removed_unless_a_script_or_emoji_needs_them(text: str, left: str) -> None:
    assert without_invisible(text) == left
    assert without_invisible(left) == left
    assert (has_invisible(text), has_invisible(left)) == (text != left, False)


def test_hidden_text_is_written_out_for_people() -> None:
    assert with_invisible_shown(HIDDEN) == f"The kiln⟦U+200B⟧ is⟦hidden: {ORDER}⟧ ⟦U+202E⟧hot⟦U+202C⟧."
    assert with_invisible_shown(ENGLAND) == ENGLAND
    assert with_invisible_shown("a\U000e0001b") == "a⟦hidden: ·⟧b"


def test_texts_in_lists_and_objects_are_cleaned() -> None:
    assert json_without_invisible({"a": [HIDDEN, {"b": HIDDEN}], "n": 3}) == {"a": [PLAIN, {"b": PLAIN}], "n": 3}


def test_row_10_an_engine_receives_no_invisible_characters() -> None:
    assert as_data({"text": HIDDEN}) == json.dumps({"text": PLAIN})


@pytest.mark.django_db(transaction=True)
class TestModels:
    """What models receive of a conversation with hidden text."""

    @pytest.fixture
    def session(self, ada: UserProfile) -> Session:
        return append(ada, "s1", [NewMessage("user", HIDDEN), NewMessage("assistant", "It is.")]).session

    @pytest.mark.parametrize("form", ["xml", "markdown", "messages", "json"])
    def test_row_10_a_context_has_no_invisible_characters(self, service: Api, session: Session, form: str) -> None:
        answer = service.get("memory/context", user_id="ada", session_id="s1", format=form, query=f"Is it hot?{TAGS}")
        text = json.dumps(answer.json(), ensure_ascii=False)
        assert "The kiln is hot" in text and not has_invisible(text)

    def test_row_10_search_results_and_turns_have_no_invisible_characters(self, service: Api, session: Session) -> None:
        found = service.post("memory/search", user_id="ada", query="kiln").json()
        assert PLAIN in [result["content"] for result in found["results"]]
        token = CURRENT.set(Connection("ada", "default", "key:test", "write", DEFAULT))
        try:
            search, turn = async_to_sync(server.search_long_term_memory), async_to_sync(server.session_message)
            read: list[Any] = [search("kiln"), turn("s1", "0")]
        finally:
            CURRENT.reset(token)
        assert not has_invisible(json.dumps(read, ensure_ascii=False, default=str))

    def test_stored_messages_are_unchanged(self, service: Api, session: Session) -> None:
        assert Message.objects.get(sequence=0).content == HIDDEN
        live = service.get("sessions/s1/messages", user_id="ada", view="live").json()
        assert live["messages"][0]["content"] == HIDDEN

    def test_row_10_an_operator_sees_hidden_text_written_out(self, session: Session) -> None:
        shown = page(operator(), change_url(session))
        assert f"is⟦hidden: {ORDER}⟧" in shown and not has_invisible(shown)

    def test_row_24_a_text_with_invisible_characters_cannot_be_released(self, ada: UserProfile) -> None:
        learned = candidate(ada, shard("kilns", "default"), "Open the kiln's vent before firing.")
        with pytest.raises(CannotRelease, match="invisible characters"):
            release(learned, f"Air first.{TAGS}", actor="operator:eve")

    def test_row_24_a_quotation_is_recognized_despite_invisible_characters(self) -> None:
        assert quotes("Open the vent before firing", ["Open\u200b the v\u200bent bef\u2060ore firing"])


def test_the_template_filter_writes_hidden_text_out_and_escapes_the_rest() -> None:
    assert Template("{{ text|visible }}").render(Context({"text": f"<{TAGS}>"})) == f"&lt;⟦hidden: {ORDER}⟧&gt;"
