"""The docs match the repository."""

import re
import runpy
from pathlib import Path

import pytest
from django.conf import settings

from tests.support import house
from tests.support.trust_table import PAGE, listed

ROOT = Path(settings.BASE_DIR)
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))


@pytest.mark.slow
def test_the_trust_table_names_exactly_the_tests_that_prove_its_rows() -> None:
    document = PAGE.read_text()
    assert document.endswith(listed()), "Run python -m tests.support.trust_table."
    claimed = set(re.findall(r"^\| (\d+) \|", document, re.M))
    assert claimed == set(re.findall(r"^test_row_(\d+)", document, re.M))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_are_valid(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [
        target for target in targets if "://" not in target and not (document.parent / target).resolve().exists()
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_have_no_comment_behind_their_value(document: Path) -> None:
    """In `.env`, such a comment would become a part of the value."""
    assert re.findall(r"^ *[A-Z][A-Z0-9_]*=.* #.*", document.read_text(), re.M) == []


def test_the_site_has_every_page_and_renders_nested_lists() -> None:
    navigation = (ROOT / "docs/site/mkdocs.yml").read_text()
    assert all(f"docs/{page.name}" in navigation for page in (ROOT / "docs").glob("*.md"))
    rewrite = runpy.run_path(str(ROOT / "docs/site/github_lists.py"))["on_page_markdown"]
    written = "As follows:\n1. One\n   more:\n\n   ```\n   - code\n   ```\n2. Two\n   - Three\n\nEnd"
    read = "As follows:\n\n1. One\n    more:\n\n    ```\n    - code\n    ```\n2. Two\n    - Three\n\nEnd"
    assert rewrite(written) == read


@pytest.mark.parametrize("record", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_date_a_status_and_all_parts(record: Path) -> None:
    title, blank, status, *_ = (text := record.read_text()).splitlines()
    assert re.fullmatch(r"# [A-Z].*[^.]", title) and blank == ""
    assert re.fullmatch(
        r"Date: \d{4}-\d\d-\d\d · Status: (accepted|superseded by \[(?P<by>\d{4})\]\((?P=by)-[\w-]+\.md\))", status
    )
    assert re.findall("^## (.*)", text, re.M) == ["Context", "Decision", "Consequences", "Alternatives considered"]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(record.name[:4]) for record in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_path_of_a_message_uses_as_many_files_as_the_page_says() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    pattern = r"\*\*Following one message\.\*\*(.*?) Together, the six steps above use (\d+) files\."
    told = re.search(pattern, page, re.S)
    assert told
    names = set(re.findall(r"(?<!\bor )`([\w/.]+)`", told[1].replace("\n", " ")))  # a message passes one of two engines
    found = {name: [*ROOT.glob(f"*_app/**/{name}"), *ROOT.glob(name)] for name in names}
    assert all(len(paths) == 1 for paths in found.values()), found
    assert len({path for (path,) in found.values()}) == int(told[2]) <= 25


def test_the_diagram_of_imports_is_current() -> None:
    assert house.page() == house.PAGE.read_text(), "Run `make house`."


def test_every_arrow_of_the_diagram_points_down() -> None:
    for app, floors in house.floors().items():
        level = {room: number for number, floor in enumerate(floors) for room in floor}
        for room, below in house.arrows(app, set(level)).items():
            assert all(level[room] < level[other] for other in below), f"{app}.{room} imports from a layer above it"
