"""Where the embedded server of a data directory is: it listens on any free port, and writes its address into a file."""

from pathlib import Path

FILE = "embeddings.url"
NOWHERE = "http://127.0.0.1:1/v1"  # refuses connections


def read(data_dir: Path) -> str:
    """Return the address of the server, or one that can't be reached."""
    try:
        return (data_dir / FILE).read_text()
    except OSError:
        return NOWHERE


def write(data_dir: Path, address: str) -> None:
    """Replace the address at once: readers see the old one or the new one."""
    fresh = data_dir / f"{FILE}.new"
    fresh.write_text(address)
    fresh.replace(data_dir / FILE)


def remove(data_dir: Path) -> None:
    """Forget the address, if there is one."""
    (data_dir / FILE).unlink(missing_ok=True)
