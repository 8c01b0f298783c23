"""The browser of the browser tests: one that is there, or else one that is fetched.

`python -m tests.support.chromium`, as `make test` runs it, gets one where none is found: Debian's own as root on
Debian, Playwright's elsewhere. Where neither works it says so, and the browser tests fail with the same sentence.
On Debian it gets the shell without a window even where there is a whole Chromium, which takes a quarter more CPU.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

MISSING = (
    "There is no Chromium for the browser tests, and none could be fetched. Install one so that `chromium` or "
    "`google-chrome` is on the PATH, or run `.venv/bin/python -m playwright install chromium`."
)
SHELL = "chromium-headless-shell"
NAMES = (SHELL, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """Path of a Chromium on this machine; None where there is none."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def fetch() -> None:
    """Install one: from Debian's packages where that is ours to do, else as Playwright does."""
    if _is_debian() and os.geteuid() == 0:
        if not shutil.which(SHELL):
            subprocess.run(["apt-get", "update", "--quiet"], check=False)
            subprocess.run(["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", SHELL], check=False)
    elif not find():
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def _is_debian() -> bool:
    try:
        return platform.freedesktop_os_release()["ID"] == "debian"
    except OSError:
        return False


if __name__ == "__main__":
    fetch()
    sys.stdout.write(f"{find() or MISSING}\n")
