"""Print the size of the repository: `make size`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ("memoryproject", "sessions_app", "moments_app")
OTHERS = ("memory_extras", "drill", "benchmarks", "tests")


def main() -> None:
    folders = {folder: _sources(folder) for folder in (*CORE, *OTHERS) if (ROOT / folder).exists()}
    print(f"{'':16}{'lines':>9}{'modules':>9}{'migrations':>12}{'their lines':>13}")
    _row("core", [path for folder in CORE for path in folders[folder]])
    for folder, paths in folders.items():
        _row(f"  {folder}" if folder in CORE else folder, paths)
    print(f"{'docs':16}{_words((ROOT / 'docs').rglob('*.md')):>9,} words")
    print(f"{'settings':16}{_settings():>9,}")


def _sources(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts]


def _row(name: str, paths: Sequence[Path]) -> None:
    migrations = [path for path in paths if path.parent.name == "migrations" and path.name[0].isdigit()]
    modules = [path for path in paths if path.parent.name != "migrations"]
    numbers = _lines(modules), len(modules), len(migrations), _lines(set(paths) - set(modules))
    print(f"{name:16}{numbers[0]:>9,}{numbers[1]:>9,}{numbers[2]:>12,}{numbers[3]:>13,}")


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _words(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().split()) for path in paths)


def _settings() -> int:
    """Count the rows of the table in docs/settings.md, which a test compares with the settings."""
    return (ROOT / "docs/settings.md").read_text().count("\n| `")


if __name__ == "__main__":
    main()
