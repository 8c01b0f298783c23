"""The modules that each command imports before it starts."""

import re
import subprocess
import sys

import pytest

from memoryproject.conf import BASE_DIR
from tests.support.processes import environment

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# Together half a second: server code, code of single commands, and pages.
DEAR = ("numpy", "mcp", "uvicorn", "httpx2", "rapidfuzz", "moments_app.operator.admin", "memoryproject.urls")
CODE = f"import django, sys; django.setup(); print([name for name in {DEAR} if name in sys.modules])"
# An error that only the check of the page finds.
BROKEN_PAGE = """
import sys, django
django.setup()
from django.core.management import call_command
from sessions_app.admin import base
base.PageAdmin.list_per_page = "many"
call_command("check", tags=["admin"])
"""


def test_a_command_without_model_calls_imports_nothing_expensive() -> None:
    assert ran(CODE).stdout == "[]\n"


def test_check_imports_the_pages_that_other_commands_skip() -> None:
    assert re.search(r"moments_app\.operator.*admin\.E118", ran(BROKEN_PAGE).stderr)


def ran(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=BASE_DIR,
        env=environment(DJANGO_SETTINGS_MODULE="memoryproject.settings"),
        capture_output=True,
        text=True,
    )
