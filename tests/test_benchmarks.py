"""That the benchmarks run: what they measure is not looked at here."""

import subprocess
import sys

from django.conf import settings

SMALL = """
import importlib
from types import SimpleNamespace
from benchmarks import __main__ as run, seed

few = {
    "ROUNDS": 2, "REPEATS": 2, "WARM_UP": 0.1, "HTTP_SECONDS": 0.3, "RAW_SECONDS": 0.2, "TURNS": 200,
    "LENGTHS": (200, 1_000), "MEMORIES": (10, 100), "SIZES": ((300, 1), (1_000, 50)),
}

def small(name):
    topic = importlib.import_module(name)
    for constant in few.keys() & vars(topic).keys():
        setattr(topic, constant, few[constant])
    return topic

seed.PEOPLE = 20
run.importlib = SimpleNamespace(import_module=small)
raise SystemExit(run.main([]))
"""


def test_each_measures_the_platform_beside_raw_statements() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    for title in ("Append over HTTP", "Load the live window", "Build moments of", "Context over HTTP", "Search facts"):
        assert title in done.stdout


def test_an_unknown_one_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"], cwd=settings.BASE_DIR, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "speed" in done.stderr
