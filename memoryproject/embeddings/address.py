"""The address file of the embedded server in a data directory. The server listens on any free port."""

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
    """Replace the address atomically."""
    fresh = data_dir / f"{FILE}.new"
    fresh.write_text(address)
    fresh.replace(data_dir / FILE)


def remove(data_dir: Path) -> None:
    """Remove the address file, if there is one."""
    (data_dir / FILE).unlink(missing_ok=True)
