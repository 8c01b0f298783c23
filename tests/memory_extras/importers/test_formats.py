"""Import conversations from ChatGPT, Claude and OpenAI's API."""

import json
import sys
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from memoryproject.conf import BASE_DIR, RollingSummarySettings
from moments_app.models import Job, Summary
from moments_app.turns.engine_input import pair_safe_boundary, tool_calls
from sessions_app.models import Message, Session, UserProfile
from tests.support.commands import printed
from tests.support.exports import AT, as_array, as_lines, as_zip, chatgpt, claude, node, said
from tests.support.memory import peak_memory
from tests.support.processes import environment

pytestmark = pytest.mark.django_db(transaction=True)


def imported(path: Path, **options: Any) -> str:
    return printed("import_sessions", str(path), stderr=StringIO(), **({"user": "ada"} | options))


def refused(path: Path, **options: Any) -> str:
    """Run an import that fails; return its output and error."""
    err = StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("import_sessions", str(path), user="ada", stdout=StringIO(), stderr=err, **options)
    return f"{err.getvalue()}{caught.value}"


def turns(session_id: str) -> list[Message]:
    return list(Session.objects.get(session_id=session_id).messages.in_order())


def payload(turn: Message) -> dict[str, Any]:
    assert turn.payload is not None
    return dict(turn.payload)


def dump() -> list[list[Any]]:
    """Return all rows that an import could change."""
    return [list(model.objects.order_by("pk").values()) for model in (UserProfile, Session, Message, Job, Summary)]


CHATGPT = chatgpt(
    node("root", None),
    node("sys", "root", "system", "", weight=0.0),
    node("hidden", "sys", "user", "About me", metadata={"is_visually_hidden_from_conversation": True}),
    node("m1", "hidden", "user", "What is in the kiln?"),
    node(
        "m2",
        "m1",
        "assistant",
        {"content_type": "code", "language": "python", "text": "look()"},
        recipient="python",
    ),
    node("m3", "m2", "tool", {"content_type": "execution_output", "text": "three bowls"}, tool="python"),
    node("m4", "m3", "assistant", "Three bowls.", create_time=AT + 30.5),
)


def test_chatgpt_imports_the_current_branch(tmp_path: Path) -> None:
    tree = chatgpt(
        node("root", None),
        node("a", "root", "user", "first try"),
        node("b", "a", "assistant", "an answer"),
        node("a2", "root", "user", "second try"),
        node("b2", "a2", "assistant", "a better answer"),
    )
    assert "2 messages added" in imported(as_array(tmp_path / "f", tree))
    assert [turn.content for turn in turns("chatgpt:c1")] == ["second try", "a better answer"]


def test_chatgpt_keeps_titles_times_roles_and_ids(tmp_path: Path) -> None:
    imported(as_array(tmp_path / "f", CHATGPT), agent="coach")
    session = Session.objects.get()
    assert (session.title, session.source, session.agent_id) == ("The kiln", "import:chatgpt", "coach")
    found = [(turn.role, turn.content, turn.tool_name, turn.external_id) for turn in turns("chatgpt:c1")]
    assert found == [
        ("user", "What is in the kiln?", "", "chatgpt:m1"),
        ("assistant", "", "", "chatgpt:m2"),
        ("tool", "three bowls", "python", "chatgpt:m3"),
        ("assistant", "Three bowls.", "", "chatgpt:m4"),
    ]
    assert session.last_activity_at.isoformat() == "2023-11-14T22:13:50.500000+00:00"


def test_chatgpt_keeps_tool_calls_with_their_results(tmp_path: Path) -> None:
    imported(as_array(tmp_path / "f", CHATGPT))
    _, call, result, _ = conversation = turns("chatgpt:c1")
    [found] = tool_calls(call.payload)
    assert found["function"] == {"name": "python", "arguments": "look()"}
    assert payload(result)["tool_call_id"] == found["id"]
    assert pair_safe_boundary(conversation, 2) == 1


def test_chatgpt_names_pictures_files_and_audio(tmp_path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "width": 4, "height": 3}
    spoken = {"content_type": "audio_transcription", "text": "Look at this", "direction": "in"}
    content = {"content_type": "multimodal_text", "parts": [picture, spoken, "and that"]}
    attached = [{"id": "file-2", "name": "glazes.pdf", "size": 12}]
    quote = {"content_type": "tether_quote", "url": "https://kiln.example", "title": "Kilns", "text": "1,200 °C"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Heat", "content": "Hotter."}]}
    imported(
        as_array(
            tmp_path / "f",
            chatgpt(
                node("m1", None, "user", content, metadata={"attachments": attached}),
                node("m2", "m1", "tool", quote, tool="browser"),
                node("m3", "m2", "assistant", thoughts),
            ),
        )
    )
    asked, quoted, thought = turns("chatgpt:c1")
    assert asked.content == "Look at this\nand that"
    assert payload(asked)["parts"] == [picture]
    assert payload(asked)["attachments"] == attached
    assert (quoted.content, payload(quoted)["content"]["url"]) == ("1,200 °C", "https://kiln.example")
    assert (thought.content, payload(thought)["content"]) == ("", thoughts)


def test_chatgpt_a_message_without_a_time_gets_the_time_of_its_conversation(tmp_path: Path) -> None:
    imported(as_array(tmp_path / "f", chatgpt(node("m1", None, "user", "hello", create_time=None))))
    assert Message.objects.get().created_at.timestamp() == AT


def test_chatgpt_adds_a_branch_chosen_later_and_keeps_the_old_one(tmp_path: Path) -> None:
    first = node("a", None, "user", "one"), node("b", "a", "assistant", "two")
    imported(as_array(tmp_path / "f", chatgpt(*first)))
    edited = chatgpt(*first, node("a2", None, "user", "one, but different"), node("b2", "a2", "assistant", "three"))
    assert "2 messages added, 0 already stored" in imported(as_array(tmp_path / "f", edited))
    assert [turn.content for turn in turns("chatgpt:c1")] == ["one", "two", "one, but different", "three"]


CLAUDE = claude(
    said("m1", "human", "What is in the kiln?"),
    said(
        "m2",
        "assistant",
        {"type": "thinking", "thinking": "I should look."},
        "Let me look.",
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "kiln"}},
        {"type": "tool_result", "tool_use_id": "t1", "name": "look", "content": [{"type": "text", "text": "bowls"}]},
        "Three bowls.",
        created_at="2024-05-01T12:00:09Z",
    ),
)


def test_claude_a_message_with_calls_and_results_becomes_turns(tmp_path: Path) -> None:
    assert "4 messages added" in imported(as_array(tmp_path / "f", CLAUDE))
    asked, call, result, answer = conversation = turns("claude:c1")
    found = [(turn.role, turn.content, turn.external_id) for turn in conversation]
    assert found == [
        ("user", "What is in the kiln?", "claude:m1"),
        ("assistant", "Let me look.", "claude:m2"),
        ("tool", "bowls", "claude:m2:1"),
        ("assistant", "Three bowls.", "claude:m2:2"),
    ]
    [called] = tool_calls(call.payload)
    assert called == {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": "kiln"}'}}
    assert payload(call)["parts"] == [{"type": "thinking", "thinking": "I should look."}]
    assert (result.tool_name, payload(result)["tool_call_id"]) == ("look", "t1")
    assert (asked.created_at.microsecond, answer.created_at.second) == (123456, 9)
    session = Session.objects.get()
    assert (session.title, session.source) == ("The kiln", "import:claude")


def test_claude_names_attachments_and_adds_pasted_text_to_the_content(tmp_path: Path) -> None:
    attached = [
        {"file_name": "", "file_size": 9, "file_type": "txt", "extracted_content": "a pasted text"},
        {"file_name": "glazes.csv", "file_size": 9, "file_type": "text/csv", "extracted_content": "celadon " * 50_000},
    ]
    message = said("m1", "human", "Look:", attachments=attached, files=[{"file_name": "kiln.png"}])
    imported(as_array(tmp_path / "f", claude(message)))
    turn = Message.objects.get()
    assert turn.content == "Look:\n\na pasted text"
    [named] = payload(turn)["attachments"]
    assert named["file_name"] == "glazes.csv"
    assert "characters left out" in named["extracted_content"]
    assert payload(turn)["files"] == [{"file_name": "kiln.png"}]


def test_claude_older_exports_have_only_text(tmp_path: Path) -> None:
    message: dict[str, Any] = {"uuid": "m1", "sender": "human", "text": "hello", "created_at": "2023-05-01T12:00:00Z"}
    imported(as_array(tmp_path / "f", claude(message)))
    assert Message.objects.get().content == "hello"


def test_claude_imports_the_newest_of_several_branches(tmp_path: Path) -> None:
    messages = (
        said("a", "human", "first", parent_message_uuid="00000000-0000-4000-8000-000000000000"),
        said("b", "assistant", "left", parent_message_uuid="a", created_at="2024-05-01T12:00:01Z"),
        said("c", "assistant", "right", parent_message_uuid="a", created_at="2024-05-01T12:00:02Z"),
    )
    imported(as_array(tmp_path / "f", claude(*messages)))
    assert [turn.content for turn in turns("claude:c1")] == ["first", "right"]
    imported(as_array(tmp_path / "f", claude(*messages, uuid="c2", current_leaf_message_uuid="b")))
    assert [turn.content for turn in turns("claude:c2")] == ["first", "left"]


OPENAI: dict[str, Any] = {
    "id": "kiln",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "name": "Ada", "content": [{"type": "text", "text": "What is in the kiln?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "bowls"},
        {"role": "assistant", "content": "Bowls.", "weight": 0},
    ],
}


def test_openai_imports_all_roles_and_tool_calls(tmp_path: Path) -> None:
    imported(as_lines(tmp_path / "f", OPENAI))
    system, asked, call, result, answer = conversation = turns("openai:kiln")
    assert [turn.role for turn in conversation] == ["system", "user", "assistant", "tool", "assistant"]
    assert (asked.content, asked.name) == ("What is in the kiln?", "Ada")
    assert tool_calls(call.payload)[0]["id"] == payload(result)["tool_call_id"] == "t1"
    assert result.tool_name == "look"
    assert answer.metadata == {"weight": 0}
    assert system.payload is None


def test_openai_imports_legacy_function_calls(tmp_path: Path) -> None:
    old = [
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "bowls"},
    ]
    imported(as_lines(tmp_path / "f", {"id": 7, "messages": old}))
    call, result = turns("openai:7")
    assert tool_calls(call.payload)[0]["function"]["name"] == result.tool_name == "look"


def test_openai_stores_pictures_in_the_payload_without_their_data(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://kiln.example/a.png"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 300_000}"}},
        {"type": "input_audio", "input_audio": {"data": "B" * 300_000, "format": "wav"}},
    ]
    imported(as_lines(tmp_path / "f", {"messages": [{"role": "user", "content": parts}]}))
    turn = Message.objects.get()
    linked, inline, sound = payload(turn)["parts"]
    assert turn.content == "Look"
    assert linked["image_url"]["url"] == "https://kiln.example/a.png"
    assert inline["image_url"]["url"].startswith("data:image/png;base64,")
    assert len(json.dumps([inline, sound])) < 1_000


def test_openai_ignores_empty_messages(tmp_path: Path) -> None:
    contents: list[Any] = [None, "", " \n", []]
    empty = [{"role": "assistant", "content": content} for content in contents]
    imported(as_lines(tmp_path / "f", {"messages": [{"role": "user", "content": "Hello"}, *empty]}))
    assert Message.objects.get().content == "Hello"


def test_openai_conversations_without_an_id_are_identified_by_their_text(tmp_path: Path) -> None:
    lines: list[Any] = [{"messages": [{"role": "user", "content": text}]} for text in ("one", "two", "one")]
    lines.append({"metadata": {"session_id": "own"}, "messages": [{"role": "user", "content": "three"}]})
    assert "3 messages added, 1 already stored" in imported(as_lines(tmp_path / "f", *lines))
    assert Session.objects.count() == 3
    assert turns("openai:own")


def test_openai_a_conversation_with_an_id_may_grow(tmp_path: Path) -> None:
    imported(as_lines(tmp_path / "f", OPENAI))
    longer = OPENAI | {"messages": [*OPENAI["messages"], {"role": "user", "content": "Thanks"}]}
    assert "1 messages added, 5 already stored" in imported(as_lines(tmp_path / "f", longer))


# --- repeated imports ---


@pytest.mark.usefixtures("forming")
@pytest.mark.parametrize("name", ["openai", "chatgpt", "claude"])
def test_row_1_a_repeated_import_changes_nothing_and_a_longer_one_adds_the_rest(
    tmp_path: Path, name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ROLLING_SUMMARY = RollingSummarySettings()
    monkeypatch.setattr("moments_app.summaries.FIRST_END", 0)
    long = "The kiln was hot. " * 200
    write, short, longer = {
        "openai": (
            as_lines,
            OPENAI,
            OPENAI | {"messages": [*OPENAI["messages"], {"role": "user", "content": long}]},
        ),
        "chatgpt": (
            as_array,
            CHATGPT,
            chatgpt(*CHATGPT["mapping"].values(), node("m5", "m4", "user", long)),
        ),
        "claude": (
            as_array,
            CLAUDE,
            claude(*CLAUDE["chat_messages"], said("m3", "human", long)),
        ),
    }[name]
    imported(write(tmp_path / "short", short))
    before = dump()
    assert "0 messages added" in imported(tmp_path / "short")
    assert dump() == before
    assert before[3], "a summary is queued"
    assert "1 messages added" in imported(write(tmp_path / "longer", longer))
    after = dump()
    imported(tmp_path / "longer")
    imported(tmp_path / "short")
    assert dump() == after


def test_an_edited_title_is_kept(tmp_path: Path) -> None:
    imported(as_array(tmp_path / "f", CLAUDE))
    Session.objects.update(title="Pottery")
    imported(as_array(tmp_path / "f", claude(*CLAUDE["chat_messages"], said("m3", "human", "Thanks"))))
    assert Session.objects.get().title == "Pottery"


def test_row_1_archived_turns_are_not_imported_again(tmp_path: Path) -> None:
    """Cover both states that retention leaves: the oldest turns are archived, or all of them."""
    imported(as_array(tmp_path / "f", CLAUDE))
    session = Session.objects.get()
    for kept_from in (2, 4):
        session.messages.filter(sequence__lt=kept_from).delete()
        Session.objects.update(kept_from_sequence=kept_from)
        assert "0 messages added, 4 already stored" in imported(tmp_path / "f")
    later = said("m3", "human", "Thanks", created_at="2024-05-02T12:00:00Z")
    longer = as_array(tmp_path / "longer", claude(*CLAUDE["chat_messages"], later))
    assert "1 messages added, 4 already stored" in imported(longer)
    assert [turn.content for turn in turns("claude:c1")] == ["Thanks"]


def test_a_message_without_a_time_is_not_added_to_a_session_with_archived_turns(tmp_path: Path) -> None:
    imported(as_lines(tmp_path / "f", OPENAI))
    Message.objects.all().delete()
    Session.objects.update(kept_from_sequence=5)
    assert "line 1, message 5: It has no time" in refused(tmp_path / "f")
    assert Message.objects.count() == 0


# --- files ---


def test_the_zip_file_of_an_export_can_be_imported(tmp_path: Path) -> None:
    other = chatgpt(node("x1", None, "user", "elsewhere"), name="c2")
    path = as_zip(tmp_path / "export.zip", conversations_000=[CHATGPT], conversations_001=[other])
    assert "5 messages added" in imported(path)
    assert "4 messages added" in imported(as_zip(tmp_path / "claude.zip", conversations=[CLAUDE]))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "Known formats"),
        (b"\x00\xff\x80 junk", "Known formats"),
        (b'{"colour": "red"}\n', "chat_messages (claude)"),
        (b"[]", "Known formats"),
        (b'[{"title": "neither"}]', "Known formats"),
        (b"PK\x03\x04 cut short", "the zip file is incomplete"),
        (b"[" * 200_000, "Known formats"),
    ],
)
def test_a_file_of_unknown_format_is_rejected_with_the_known_formats(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "f").write_bytes(content)
    assert told in refused(tmp_path / "f")
    assert not UserProfile.objects.exists()


@pytest.mark.parametrize("chosen", ["openai", "chatgpt", "claude"])
@pytest.mark.parametrize("content", [b"\x00\xff\x80", b"null", b"[[[", b'{"a": 1}', b"[1]", b"[null]", b'["\\ud800"]'])
def test_a_file_that_does_not_have_the_given_format_is_rejected(tmp_path: Path, chosen: str, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert "1: " in refused(tmp_path / "f", format=chosen)
    assert not UserProfile.objects.exists()


def test_the_person_must_be_named_exactly_once(tmp_path: Path) -> None:
    path = as_array(tmp_path / "f", CLAUDE)
    for user, told in (("", "--user"), ("a/b", "slash"), ("x" * 256, "255")):
        with pytest.raises(CommandError, match=told):
            call_command("import_sessions", str(path), user=user)
    own = as_lines(tmp_path / "own", {"user_id": "ada", "session_id": "s1", "role": "user", "content": "hello"})
    assert "leave out --user" in refused(own)


def test_zips_that_are_damaged_encrypted_or_without_conversations_are_rejected(tmp_path: Path) -> None:
    assert "no conversations.json" in refused(as_zip(tmp_path / "other.zip"), format="claude")
    damaged = as_zip(tmp_path / "damaged.zip", conversations=[CLAUDE] * 50)
    data = bytearray(damaged.read_bytes())
    place = data.index(b"conversations.json") + 200
    data[place : place + 20] = bytes(20)
    damaged.write_bytes(data)
    assert "damaged" in refused(damaged, format="claude")
    locked = as_zip(tmp_path / "locked.zip", conversations=[CLAUDE])
    data = bytearray(locked.read_bytes())
    with zipfile.ZipFile(locked) as archive:
        data[archive.getinfo("conversations.json").header_offset + 6] |= 1
    central = data.rindex(b"PK\x01\x02")
    data[central + 8] |= 1
    locked.write_bytes(data)
    assert "encrypted" in refused(locked, format="claude")


def test_a_truncated_file_is_imported_up_to_the_cut_and_can_be_completed(tmp_path: Path) -> None:
    chats = [claude(said(f"m{n}", "human", f"hello {n}"), uuid=f"c{n}") for n in range(3)]
    path = as_array(tmp_path / "f", *chats)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    told = refused(path)
    assert "conversation 3: It is not valid JSON, or the file is truncated." in told
    assert "2 messages added" in told
    path.write_bytes(whole)
    assert "1 messages added, 2 already stored" in imported(path)


def test_bad_messages_are_named_and_skipped(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(40):
        deep = [deep]
    bad: list[tuple[dict[str, Any], str]] = [
        (said("b1", "robot", "x"), "sender"),
        (said("b2", "human", "a\0b"), "Null"),
        (said("b3", "human", "a\ud800b"), "Surrogate"),
        (said("b4", "human", "x", created_at="yesterday"), "created_at"),
        (said("b5", "human", "x", created_at="1969-01-01T00:00:00Z"), "1970"),
        (said("b6", "human", "x" * 200_001), "200000"),
        (said("b7", "human", {"type": "odd", "deep": deep}), "deeper"),
        (said("b" * 300, "human", "x"), "external_id"),
        ({"uuid": "b9"}, "sender"),
    ]
    good = said("g1", "human", "good"), said("g2", "assistant", "good too")
    told = refused(as_array(tmp_path / "f", claude(good[0], *(message for message, _ in bad), good[1])))
    assert "2 messages added, 0 already stored, 9 records rejected" in told
    for number, (_, reason) in enumerate(bad, 2):
        [line] = [text for text in told.splitlines() if text.startswith(f"conversation 1, message {number}:")]
        assert reason in line


def test_bad_conversations_are_named_and_skipped(tmp_path: Path) -> None:
    circle = chatgpt(node("a", "b", "user", "x"), node("b", "a", "user", "y"))
    bad = [
        chatgpt(node("m1", None, "user", "x"), current_node="nowhere"),
        circle,
        chatgpt(node("m1", None, "user", "x"), conversation_id="a/b"),
        chatgpt(node("m1", None, "user", "x"), mapping=[]),
        "text",
    ]
    told = refused(as_array(tmp_path / "f", CHATGPT, *bad, chatgpt(node("z", None, "user", "last"), name="c9")))
    assert "5 messages added" in told
    assert [number for number in range(1, 8) if f"conversation {number}: " in told] == [2, 3, 4, 5, 6]


def test_errors_contain_no_text_of_messages(tmp_path: Path) -> None:
    secret = "the marked secret"
    lines = [
        f'{{"messages": [{{"role": "user", "content": "{secret}',
        {"messages": [{"role": secret, "content": secret}]},
        {"messages": [{"role": "user", "content": {secret: secret}}]},
        {"messages": [{"role": "user", "content": f"{secret}\0"}]},
        {"messages": secret},
    ]
    told = refused(as_lines(tmp_path / "f", *lines), format="openai")
    assert "5 records rejected" in told
    assert secret not in told


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions_app.imports.source.RECORD_MAX", 5_000)
    long = {"messages": [{"role": "user", "content": "x" * 3_000_000}]}
    told = refused(as_lines(tmp_path / "f", OPENAI, long, OPENAI | {"id": "other"}))
    assert "line 2: It is longer" in told
    assert "10 messages added" in told


def test_deeply_nested_json_is_rejected(tmp_path: Path) -> None:
    for content in ("[" * 500_000, f'[{{"uuid": "c", "chat_messages": {"[" * 100_000}{"]" * 100_000}}}]'):
        (tmp_path / "f").write_text(content)
        assert "nested too deeply" in refused(tmp_path / "f", format="claude")


def test_a_dry_run_counts_the_same_and_changes_nothing(tmp_path: Path) -> None:
    path = as_array(tmp_path / "f", CLAUDE)
    assert "4 messages added, 0 already stored" in imported(path, dry_run=True)
    assert dump() == [[], [], [], [], []]
    imported(path)
    before = dump()
    longer = as_array(tmp_path / "g", claude(*CLAUDE["chat_messages"], said("m3", "human", "Thanks")))
    assert "1 messages added, 4 already stored" in imported(longer, dry_run=True)
    assert dump() == before


def test_a_file_with_a_byte_order_mark_can_be_imported(tmp_path: Path) -> None:
    for path in (as_array(tmp_path / "array", CLAUDE), as_lines(tmp_path / "lines", OPENAI)):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert "messages added" in imported(path)


@pytest.mark.slow
def test_a_file_of_50_megabytes_is_imported_in_little_memory(tmp_path: Path) -> None:
    """Import 50 conversations of a megabyte each, most of it in abandoned branches."""
    left = [node(f"left{n}", "root", "user", "x" * 10_000) for n in range(100)]
    taken = node("root", None, "user", "hello"), node("last", "root", "assistant", "hello yourself")
    path = as_array(tmp_path / "f", *(chatgpt(*left, *taken, name=f"c{n}") for n in range(50)))
    assert path.stat().st_size > 50_000_000
    command = [sys.executable, "manage.py", "import_sessions", str(path), "--user", "ada"]
    assert peak_memory(command, cwd=BASE_DIR, env=environment()) < 300_000_000
    assert Message.objects.count() == 100
