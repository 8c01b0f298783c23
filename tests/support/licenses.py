"""The licenses of packages according to their metadata, as SPDX identifiers."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
# Texts in metadata that are not SPDX identifiers.
_NAMES = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def locked(list_name: str) -> dict[str, str]:
    """Return the versions in a list of requirements, by package. Of several, use the one for the newest Python."""
    lines = (ROOT / list_name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", lines, re.M))


def license_of(package: str) -> str | None:
    """Return the license of a package. None if it isn't installed, because it is for other systems."""
    try:
        told = metadata(package)
    except PackageNotFoundError:
        return None
    if told["License-Expression"]:
        return told["License-Expression"]
    classified = [line.split(" :: ")[-1] for line in told.get_all("Classifier") or () if line.startswith("License")]
    named = classified or re.split(r", ", told["License"] or "")
    return " AND ".join(" OR ".join(_NAMES.get(one, one) for one in name.split(" OR ")) for name in named)


def brought_by(packages: Iterable[str]) -> set[str]:
    """Return packages with all their installed dependencies."""
    found: set[str] = set()
    waiting = [*packages]
    while waiting:
        if (name := waiting.pop()) not in found and license_of(name) is not None:
            found.add(name)
            needed = [one for one in requires(name) or () if "extra ==" not in one]
            waiting += [re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in needed]  # type: ignore[index]
    return found


def terms(expression: str) -> list[list[str]]:
    """Return the parts of a license expression that all apply, each a list of alternatives."""
    return [part.strip("() ").split(" OR ") for part in expression.split(" AND ")]
