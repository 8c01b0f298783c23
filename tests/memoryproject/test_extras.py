"""Extras: a site without any works, and a setting of one that isn't installed is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from memoryproject import conf
from tests.support.folders import data_folder
from tests.support.processes import manage
from tests.support.running import Run


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as folder:
        yield folder


def test_an_extra_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"EXTRAS: .*there is no extra nonsense; there are "):
        conf.load({"EXTRAS": "nonsense"})


@pytest.mark.slow
def test_the_models_of_the_core_need_no_extra() -> None:
    checked = manage("makemigrations", "--check", "--dry-run", EXTRAS="")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow(seconds=30)
def test_the_core_alone_starts_on_an_empty_database_and_remembers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTRAS", "")
    run = Run(folder).serve()
    assert run.answers()
    context = run.stop().partition("What a model gets in a new session")[2]
    assert run.process.returncode == 0
    assert "38 square metres" in context
