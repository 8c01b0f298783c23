"""What the site's description of itself promises, for each kind of key: requests made of it by schemathesis.

Requests that fit, and that don't; with and without the key; one after another. Every
answer has to have a status, a type, headers and a body that are described, what doesn't fit has to be refused, and what
does be accepted or refused with a code that the description names (`accepted.py`). No check is left out.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drill.site import Site
from drill.trust.page import Figure
from memoryproject.conf import BASE_DIR

SERVER_ERROR = "ServerError"  # of schemathesis: an answer of 5xx
KNOWN = 0.5  # of the ids in requests are of something that is there
PHASES = "examples,coverage,fuzzing,stateful"
REPLACED = "positive_data_acceptance,missing_required_header"  # by the checks of `accepted.py`, which ask them


@dataclass(frozen=True)
class Held:
    """What came of the requests with one key.

    Args:
        kind: of the key.
        requests: how many there were.
        operations: to how many operations.
        found: the calls that failed a check, by its name.
        errors: what kept schemathesis from asking.
    """

    kind: str
    requests: int
    operations: int
    found: Mapping[str, Sequence[str]]
    errors: Sequence[str]

    @property
    def figure(self) -> Figure:
        """The row of the page."""
        broken = len(self.found.get(SERVER_ERROR, ()))
        mismatches = sum(len(calls) for calls in self.found.values()) - broken
        much = f"{self.requests:,} to {self.operations} operations"
        what = f"requests checked against the OpenAPI schema, {self.kind}"
        return what, much, f"{broken} × 5xx, {mismatches} mismatches"

    @property
    def remarks(self) -> list[str]:
        """What went wrong, a line each."""
        failed = [f"{self.kind}, {check}: {', '.join(calls)}" for check, calls in self.found.items()]
        return failed + [f"{self.kind}: {error}" for error in self.errors]


def hold(site: Site, kind: str, key: str, ids: Mapping[str, Sequence[str]], *, examples: int, number: int) -> Held:
    """Hold the site's answers against its description.

    Args:
        site: that is asked.
        kind: of the key.
        key: that asks.
        ids: that there are, by the name of the parameter.
        examples: requests to each operation, in each phase.
        number: the same requests are made of the same number.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.toml").write_text(_config(ids))
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "config.toml"), "run"]
        command += [f"http://127.0.0.1:{site.port}/api/v1/schema", "--header", f"Authorization: Bearer {key}"]
        command += ["--checks", "all", "--exclude-checks", REPLACED, "--phases", PHASES, "--continue-on-failure"]
        command += ["--max-examples", str(examples), "--seed", str(number), "--rate-limit", "auto", "--no-color"]
        # Its health checks tell how quickly it thinks requests up, which is the machine's affair.
        command += ["--wait-for-schema", "60", "--suppress-health-check", "all"]
        command += ["--report", "json", "--report-json-path", str(folder / "report.json")]
        hooks = {"SCHEMATHESIS_HOOKS": "drill.trust.accepted"}
        done = subprocess.run(
            command, cwd=BASE_DIR, env=os.environ | hooks, capture_output=True, text=True, check=False
        )
        report = folder / "report.json"
        told = json.loads(report.read_text()) if report.exists() else {}
        if not told.get("operations"):
            return Held(
                kind, 0, 0, {}, [f"schemathesis ended with {done.returncode}: {(done.stdout + done.stderr)[-500:]}"]
            )
        held = held_of(kind, told)
        if held.remarks:
            print(done.stdout)
        return held


def held_of(kind: str, report: Mapping[str, Any]) -> Held:
    """Return what schemathesis reports."""
    found = {failure["type"]: failure["operations"] for failure in report["failures"]}
    requests, operations = report["test_cases"]["generated"], report["operations"]["tested"]
    return Held(kind, requests, operations, found, [json.dumps(error)[:300] for error in report["errors"]])


def _config(ids: Mapping[str, Sequence[str]]) -> str:
    """Return the configuration in which half of the ids are known ones, as TOML."""
    known = {name: list(values) for name, values in ids.items() if values}
    lists = [f"[dictionaries.{name}]\nvalues = {json.dumps(values)}\n" for name, values in known.items()]
    bound = [
        f'"{place}.{name}" = {{ dictionary = "{name}", probability = {KNOWN} }}'
        for name in known
        for place in ("path", "query", "body")
    ]
    return "\n".join([*lists, "[parameters]", *bound, ""])
