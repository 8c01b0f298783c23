"""The TypeScript client, compiled strictly and used against a site of ours."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sessions_app.models import ApiKey
from tests.support.first_steps import DOCS
from tests.support.live import live_site

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif("TYPESCRIPT_CLIENT" not in os.environ, reason="`make typescript` builds it"),
]


def run(*command: str, site: str = "", key: str = "") -> str:
    told = {"PATH": os.environ["PATH"], "MEMORY_URL": site, "MEMORY_KEY": key}
    done = subprocess.run(command, cwd=os.environ["TYPESCRIPT_CLIENT"], env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_compiles_and_does_what_it_says_and_so_does_the_code_of_its_page() -> None:
    [code] = re.findall(r"^```ts\n(.*?)^```", (DOCS / "clients.md").read_text(), re.M | re.S)
    key = ApiKey.objects.issue("application")[1]
    with live_site() as site:
        page = Path(os.environ["TYPESCRIPT_CLIENT"], "test/page.ts")
        page.write_text(code.replace("http://localhost:8000", site))
        run("npm", "run", "--silent", "check")
        assert run("node", "build/use.js", site=site, key=key) == "All holds.\n"
        assert "I restore kilns in Turin." in run("node", "build/page.js", site=site, key=key)
