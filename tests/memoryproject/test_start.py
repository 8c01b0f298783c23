"""What each command waits for before it begins."""

import subprocess
import sys

import pytest

from memoryproject.conf import BASE_DIR
from tests.support.processes import environment

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

DEAR = ("openai", "numpy", "mcp", "uvicorn")  # most of a second, a quarter, and what only a server needs
CODE = f"import django, sys; django.setup(); print([name for name in {DEAR} if name in sys.modules])"


def test_a_command_that_calls_no_model_imports_nothing_dear() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=BASE_DIR,
        env=environment(DJANGO_SETTINGS_MODULE="memoryproject.settings"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
