"""The browser for browser tests: an installed one, or one that is downloaded.

`make test` runs `python -m tests.support.chromium`, which installs a missing browser: Debian's package for root on
Debian, Playwright's elsewhere. If neither works, it says so, and the browser tests fail with the same message. On
Debian, it installs the headless shell even next to a full Chromium, which takes a quarter more CPU time.
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
    """Return the path of an installed Chromium, or None."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


def fetch() -> None:
    """Install a browser: from Debian's packages for root on Debian, or else from Playwright."""
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
