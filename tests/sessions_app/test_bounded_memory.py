"""Imports use bounded memory, no matter what the file contains or declares."""

import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from memoryproject.conf import BASE_DIR
from sessions_app.bounded_memory import DiskDict, end_of_values, has_more_values, max_value_count
from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.support.extras import needs
from tests.support.memory import peak_memory
from tests.support.processes import environment
from tests.support.transcript import talk

MIB = 2**20
PEAK = 400 * MIB  # a third is the program itself
LISTS = b"[" + b"[]," * (5 * MIB) + b"[]]"  # 15 MiB of JSON that take 300 in memory

Content = Callable[[bytes], Iterator[bytes]]

# Import each file as the commands do, and print why it was rejected.
IMPORT = """
import sys
from pathlib import Path
from sessions_app.imports.source import recognize
from sessions_app.imports.import_sessions import import_sessions
from sessions_app.imports.source import Owner, Source
from sessions_app.people.import_user import import_user
from sessions_app.refusals import Refusal
for path in map(Path, {paths}):
    try:
        if "person" in path.name:
            import_user(path, application=1)
        else:
            source = Source(path)
            found = recognize(source).read(source, Owner("ada"))
            import_sessions(found, application=1, on_rejected=lambda one: print(path.name, one.reason, file=sys.stderr))
    except Refusal as error:
        print(path.name, error, file=sys.stderr)
"""


def said_by(files: list[Path], capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """Import the files in a process; return its peak memory and why each file was rejected."""
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", IMPORT.format(paths=[str(one) for one in files])]
    capfd.readouterr()
    peak = peak_memory(command, cwd=BASE_DIR, env=environment())
    lines = [line.partition(" ") for line in capfd.readouterr().err.splitlines()]
    return peak, {name: told for name, _, told in lines}


@pytest.fixture
def export(ada: UserProfile, tmp_path: Path) -> Path:
    """The export of a person who was erased afterward."""
    talk(ada, 3)
    path = tmp_path / "good.zip"
    call_command("export_user", "ada", str(path), stdout=StringIO())
    erase_user("ada", application=DEFAULT, actor="test")
    return path


def with_content(export: Path, member: str, content: Content, name: str) -> Path:
    """Return a copy of the export in which one file is replaced."""
    path = export.with_name(name)
    with zipfile.ZipFile(export) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for entry in old.namelist():
            with new.open(entry, "w") as written:
                for part in content(old.read(entry)) if entry == member else (old.read(entry),):
                    written.write(part)
    return path


def put_into(field: bytes, value: bytes) -> Content:
    """Return the first line with another value for a field that is null or an object."""

    def content(old: bytes) -> Iterator[bytes]:
        line = json.loads(old.splitlines()[0])
        yield json.dumps(line | {field.decode(): "HERE"}).encode().replace(b'"HERE"', value)

    return content


def times(count: int, change: Callable[[bytes], bytes] = lambda line: line) -> Content:
    def content(old: bytes) -> Iterator[bytes]:
        line = change(old.splitlines()[0]) + b"\n"
        return (line for _ in range(count))

    return content


def spaces(mebibytes: int) -> Content:
    return lambda old: (b" " * MIB for _ in range(mebibytes))


def unknown_fields(old: bytes) -> Iterator[bytes]:
    yield b'{"n0": 0'
    for number in range(1, 450_000):
        yield b',"n%d":0' % number
    yield b"}"


def faults(old: bytes) -> Iterator[bytes]:
    yield b'{"source_sequences": ["x"' + b',"x"' * 450_000 + b"]}"


def long_and_of_no_session(line: bytes) -> bytes:
    return line.replace(b'"s1"', b'"s9"').replace(b'"content": "', b'"content": "' + b"x" * 12 * MIB)


@needs("importers")
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_each_file_is_rejected_with_its_limit_in_little_memory(
    export: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = {
        with_content(export, "manifest.json", spaces(300), "person-spaces"): "longer than 10000 bytes",
        with_content(export, "messages.jsonl", put_into(b"payload", LISTS), "person-lists"): "500,000 values",
        with_content(export, "messages.jsonl", spaces(20), "person-line"): "longer than 16777216 bytes",
        with_content(export, "messages.jsonl", unknown_fields, "person-fields"): "has 450,000 fields",
        with_content(export, "summaries.jsonl", faults, "person-faults"): "more than 100 errors",
        with_content(export, "messages.jsonl", times(30, long_and_of_no_session), "person-rows"): "the session of",
        with_content(export, "profile.jsonl", times(150_000), "person-profiles"): "2 lines, but it must have",
        chats(tmp_path / "chats.zip"): "1,000,000 values",
        lines(tmp_path / "chats.jsonl"): "1,000,000 values",
    }
    assert sum(path.stat().st_size for path in expected if path.suffix == ".zip") < 10 * MIB
    peak, told = said_by(list(expected), capfd)
    assert {path.name: reason in told.get(path.name, "") for path, reason in expected.items()} == {
        path.name: True for path in expected
    }, told
    assert peak < PEAK
    assert not UserProfile.objects.filter(user_id="ada", sessions__isnull=False).exists()


def chats(path: Path) -> Path:
    """Write a data export of a few kB that contains 30 MiB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b'[{"mapping":{}},{"mapping":{},"x":[' + LISTS + b"," + LISTS + b"]}]")
    return path


def lines(path: Path) -> Path:
    path.write_bytes(b'{"messages":[]}\n{"messages":[' + LISTS + b"," + LISTS + b"]}\n")
    return path


def refused(command: str, path: Path, *options: str) -> str:
    err = StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(command, str(path), *options, stdout=StringIO(), stderr=err)
    return f"{err.getvalue()}{caught.value}"


@pytest.mark.django_db(transaction=True)
class TestZip:
    """Zip files that are expensive to read."""

    def repacked(self, path: Path, method: int) -> Path:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_name("packed.zip"), "w", method) as new:
            for entry in old.namelist():
                new.writestr(entry, old.read(entry))
        return path.with_name("packed.zip")

    @needs("importers")
    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_other_compression_methods_are_rejected(self, export: Path, tmp_path: Path, method: int) -> None:
        assert "manifest.json: Its compression method is not deflate" in refused(
            "import_user", self.repacked(export, method)
        )
        with zipfile.ZipFile(tmp_path / "chats.zip", "w") as archive:
            archive.writestr("conversations.json", "[]")
        packed = self.repacked(tmp_path / "chats.zip", method)
        told = refused("import_sessions", packed, "--user", "ada", "--format", "chatgpt")
        assert "conversations.json: Its compression method is not deflate" in told

    @needs("importers")
    def test_a_zip_with_a_long_list_of_files_is_rejected(self, tmp_path: Path) -> None:
        path = tmp_path / "many.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(80):
                entry = zipfile.ZipInfo(f"{number}")
                entry.comment = b"x" * 60_000
                archive.writestr(entry, b"")
        for command, *options in (["import_user"], ["import_sessions", "--user", "ada", "--format", "claude"]):
            assert "list of its files is longer than 4 MiB" in refused(command, path, *options)

    def test_an_encrypted_export_is_rejected(self, export: Path) -> None:
        data = bytearray(export.read_bytes())
        with zipfile.ZipFile(export) as archive:
            data[archive.getinfo("manifest.json").header_offset + 6] |= 1
        place = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)  # of the second file
        data[place + 8] |= 1
        export.write_bytes(data)
        assert "manifest.json: It is encrypted." in refused("import_user", export)

    @needs("importers")
    def test_names_that_are_not_text_are_rejected(self, tmp_path: Path) -> None:
        path = tmp_path / "names.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("conversations-é.json", b"[]")
        path.write_bytes(path.read_bytes().replace("é".encode(), b"\xff\xff"))
        assert "not a complete zip" in refused("import_user", path)
        assert "damaged" in refused("import_sessions", path, "--user", "ada", "--format", "claude")


class TestValues:
    """Counting the values of a JSON text."""

    @pytest.mark.parametrize(
        ("text", "too_many"),
        [
            ("[1,2,3]", False),
            ("[1,2,3,4]", True),
            ("[[[[]]]]", True),
            ('{"a":1,"b":2}', False),
            ('"[,[,[,[,[,"', False),
            (r'["\",,,,,,\\",1]', False),
            (r'["\\",1,2,3]', True),
            ('["cut, off, here, and, there', False),
        ],
    )
    def test_values_in_strings_are_not_counted(self, text: str, too_many: bool) -> None:
        assert (end_of_values(text, 3) is not None, has_more_values(text.encode(), 3)) == (too_many, too_many)
        assert max_value_count(text) == max_value_count(text.encode())

    def test_the_position_of_the_last_allowed_value_is_returned(self) -> None:
        assert end_of_values("[1,2,3,4]", 3) == 6
        assert end_of_values("[1,2,3] [1]", 3, 8) is None


def test_values_on_disk_can_be_read_by_key() -> None:
    noted = DiskDict()
    noted.update({("s1", 1): 7, ("s1", 2): 8, ("\ud800\0",): 9})
    noted.update([(("s1", 2), [["a"], None])])
    assert (noted.get(("s1", 1)), noted.get(("s1", 2)), noted.get(("\ud800\0",))) == (7, [["a"], None], 9)
    assert (noted.get(("s1", "1")), noted.get(("s2", None))) == (None, None)
    assert ("s1", 1) in noted and ("s1",) not in noted
    assert sorted(noted.values(), key=str) == [7, 9, [["a"], None]]


def test_counting_a_text_of_escapes_and_commas_takes_little_memory() -> None:
    assert end_of_values('["' + r"\n," * 1_000_000 + '",' + "1," * 3 + "1]", 1_000) is None
