"""Tests that the documents match the repository."""

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_trust_table_names_every_test_that_proves_a_row_and_no_other() -> None:
    found = {
        f"- `{function.name}` ({path.relative_to(ROOT)})"
        for path in (ROOT / "tests").rglob("test_*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_row_")
    }
    document = (ROOT / "docs/trust.md").read_text()
    assert set(re.findall(r"^- `test_row_.*$", document, re.M)) == found
    claimed = set(re.findall(r"^\| (\d+) \|", document, re.M))
    assert claimed == {re.match(r"- `test_row_(\d+)", line)[1] for line in found}  # type: ignore[index]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [
        target for target in targets if "://" not in target and not (document.parent / target).resolve().exists()
    ]
    assert missing == []
