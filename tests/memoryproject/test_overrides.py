"""Files that override unfold's own. Each is derived from the version with the hash listed here.

A failure means that unfold changed one of them. docs/contributing.md, *Upgrade unfold*, says what to do.
"""

from hashlib import sha256
from pathlib import Path

import pytest
import unfold
from django.conf import settings
from django.contrib.staticfiles import finders

UNFOLD = Path(str(unfold.__file__)).parent
OURS = {"templates": settings.BASE_DIR / "templates/overrides", "static": settings.BASE_DIR / "memoryproject/static"}
ORIGINALS = {
    "templates/admin/actions.html": "b5332aace8e6919204a65b842e626bd8",
    "templates/admin/base.html": "2ce9250b3c649e3a1d3c7ea52308a285",
    "templates/admin/change_form.html": "e9824d4d8a447d9741a1fe4a83180042",
    "templates/admin/change_list.html": "5885c39760f6085d55b2db8e740d4fdc",
    "templates/admin/delete_confirmation.html": "d2f1e1adb500396f025df904076d09a0",
    "templates/admin/delete_selected_confirmation.html": "a984df47ec4909b34cb49a904fb5260f",
    "templates/admin/index.html": "9fdb849b7da18ccde0e5dda192346583",
    "templates/admin/search_form.html": "32c57965802858bd0013cf9fad08ca44",
    "templates/unfold/helpers/app_list.html": "6ab83ac498b2f50ff045b7abcf225439",
    "templates/unfold/helpers/app_list_badge.html": "bc002ff5a001fd04a8384e750c9fa981",
    "templates/unfold/helpers/empty_results.html": "5f4727a37a99da76e245048c8c7d7307",
    "templates/unfold/helpers/command.html": "ae6ce324d85366131fc82945b3c35c1b",
    "templates/unfold/helpers/field_readonly_value.html": "a1d46fa2a26e344130fb2675e1395a60",
    "templates/unfold/helpers/header_title.html": "b126ed2ab9ca16802d6763f49a74ba37",
    "templates/unfold/helpers/navigation_header.html": "35139b9d94580be975de34bc44253c52",
    "templates/unfold/helpers/navigation_user.html": "4c9ba58b3f215326703c699fff40b582",
    "templates/unfold/helpers/site_icon.html": "e35b87d138cd96c9ed6b1daca5ab6449",
    "templates/unfold/helpers/tab_actions.html": "2883f8c5b35d30858eae7345c25b24d9",
    "templates/unfold/helpers/tab_list.html": "ff9efc669fc3a20f726005c0e4068418",
    "templates/unfold/helpers/theme_switch.html": "c8e659df65f5aa78f136b862365f1dec",
    "templates/unfold/helpers/theme_switch_dropdown.html": "90421e9a3524b57f4487753acb3380c2",
    "templates/unfold/helpers/welcomemsg.html": "e8eab02522ba2319b937086bbcb6bf2a",
    "templates/unfold/layouts/skeleton.html": "66af9f0bb45f98ba4e16ba5e5a11f36d",
    "static/unfold/js/alpine/LICENSE": "5f05c4925dd3edf049a70b4b403ac0dd",
    "static/unfold/js/alpine/alpine.js": "3ed1eed252488921df65e363d6715deb",
}


def overridden() -> list[str]:
    """Return our files that have the same path as one of unfold."""
    return [
        f"{kind}/{path.relative_to(folder)}"
        for kind, folder in OURS.items()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (UNFOLD / kind / path.relative_to(folder)).is_file()
    ]


def test_each_overridden_file_is_listed() -> None:
    assert sorted(ORIGINALS) == sorted(overridden())


@pytest.mark.parametrize("name", ORIGINALS)
def test_the_original_of_each_override_is_unchanged(name: str) -> None:
    assert sha256((UNFOLD / name).read_bytes()).hexdigest()[:32] == ORIGINALS[name]


def test_alpine_is_the_csp_build() -> None:
    found = finders.find("unfold/js/alpine/alpine.js")
    assert found
    assert "@alpinejs/csp" in Path(found).read_text("utf-8")[:200]
