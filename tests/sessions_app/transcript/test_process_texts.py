"""Texts are processed before the transaction that stores them, in time linear in their length."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from moments_app.interfaces.chat.request import ChatSession
from moments_app.interfaces.chat.rounds import Round
from moments_app.models import OwnText
from moments_app.recall import index_words
from moments_app.turns import platform_text
from sessions_app import lexemes
from sessions_app.imports import text_process
from sessions_app.imports.import_sessions import Record, SessionRef, import_sessions
from sessions_app.models import Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.transcript import append as append_module
from sessions_app.transcript.append import WORDS_MAX_BYTES, NewMessage, append, process_texts
from tests.support.api import Api

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "The kiln is hot.\nIt takes a day to cool down to sixty degrees."


def by_rest(service: Api) -> None:
    said = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "Then wait until noon."}]
    assert service.post("sessions/s1/messages", user_id="ada", messages=said).status_code == 201


def by_chat(service: Api) -> None:
    Round(ChatSession("ada", "s1"), [NewMessage("user", TEXT)]).store_messages()


def by_a_function(service: Api) -> None:
    append(UserProfile.objects.ensure("ada"), "s1", [NewMessage("user", TEXT)])


def by_an_import(service: Api) -> None:
    said = [NewMessage("user", TEXT, external_id="1"), NewMessage("assistant", "Then wait.", external_id="2")]
    found = [Record(f"{n}", SessionRef("ada", f"s{n}"), message) for n, message in enumerate(said)]
    assert import_sessions(found, application=DEFAULT).added == 2


@pytest.mark.parametrize("say", [by_rest, by_chat, by_a_function, by_an_import])
def test_row_43_texts_are_processed_while_no_transaction_is_open(
    service: Api, say: Callable[[Api], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    processed: list[tuple[str, bool]] = []

    def watch(module: Any, name: str) -> None:
        process = getattr(module, name)

        def watched(*arguments: Any) -> Any:
            processed.append((name, connection.in_atomic_block))
            return process(*arguments)

        monkeypatch.setattr(module, name, watched)

    watch(lexemes, "vector")
    watch(append_module, "estimate_tokens")
    watch(text_process, "estimate_tokens")
    watch(platform_text, "text_lines")
    say(service)
    assert {name for name, _ in processed} == {"vector", "estimate_tokens", "text_lines"}
    assert not any(in_transaction for _, in_transaction in processed), processed
    assert Message.objects.matching("kiln").count() == 1


def calls_of(work: Callable[[], object]) -> int:
    """Count function calls, including those of C functions."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 100,
        "a\n" * 100,
        "- user: The kiln is hot. (2026-03-02)\n" * 20,
        "<Turn>" * 50,
        "今天早上窑炉是冷的。" * 20,
        "[" * 100,
        "- " * 100,
    ],
)
def test_row_43_processing_takes_linear_time(text: str) -> None:
    process_texts([NewMessage("user", text)])  # loads data that is loaded once
    once, twice = (calls_of(lambda n=n: process_texts([NewMessage("user", text * n)])) for n in (20, 40))  # type: ignore[misc]
    assert twice < 2.2 * once


def test_row_43_runs_of_combining_marks_are_cut_before_normalization() -> None:
    """`unicodedata.normalize` takes time quadratic in the length of such a run, and holds the GIL."""
    normal = lexemes.normal_form("e\u0301 zu\u0308gig a" + "\u0301\u0316" * 50_000 + " b")
    assert normal.startswith("é zügig ") and normal.endswith(" b")
    assert len(normal) < 50


def test_row_43_a_batch_of_megabytes_is_stored_at_once_and_partly_indexed_later(ada: UserProfile) -> None:
    long = WORDS_MAX_BYTES // 20
    said = [NewMessage("user", f"harpsichord{n} ".ljust(long, "x")) for n in range(25)]
    append(ada, "s1", said)
    assert Message.objects.unindexed().count() == 5
    assert [Message.objects.matching(f"harpsichord{n}").count() for n in (0, 19, 20, 24)] == [1, 1, 0, 0]
    assert index_words.index_words().rows == 5
    assert [Message.objects.matching(f"harpsichord{n}").count() for n in (0, 19, 20, 24)] == [1] * 4


def test_row_43_texts_are_reindexed_a_megabyte_at_a_time(ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    append(ada, "s1", [NewMessage("user", f"harpsichord {n}") for n in range(9)])
    Message.objects.update(search_version=0)
    monkeypatch.setattr(index_words, "BATCH_BYTES", 30)  # two texts
    assert list(index_words._batches(Message)) == [2, 2, 2, 2, 1]


def test_served_text_in_a_message_is_recognized_during_processing(ada: UserProfile) -> None:
    platform_text.store_lines(ada.pk, ["- user: The kiln is hot. (2026-03-02)"])
    append(ada, "s1", [NewMessage("user", "Look:\n- user: The kiln is hot. (2026-03-02)"), NewMessage("user", "Yes.")])
    assert list(OwnText.objects.values_list("sequence", "places")) == [(0, [1])]


def test_processed_text_is_kept_when_other_fields_change() -> None:
    said = NewMessage("user", "It took long.\n- user: The kiln is hot. (2026-03-02)")
    process_texts([said])
    marked = said.with_fields(external_id="a", metadata={"b": 1})
    assert (marked.external_id, marked.metadata, marked.content) == ("a", {"b": 1}, said.content)
    assert marked.words is said.words and marked.notes is said.notes
