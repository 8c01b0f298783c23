"""Whether the site conforms to its OpenAPI schema, for each kind of key. schemathesis generates the requests.

It sends requests that match the schema and others that don't, with and without the key, alone and in sequences. Each
response must have a status, type, headers and body in the schema. Requests that don't match must be rejected. Others
must be accepted, or rejected with a code in the schema (`accepted.py`). All checks are on.
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

SERVER_ERROR = "ServerError"  # schemathesis's name for a 5xx
KNOWN = 0.5  # share of existing ids in requests
PHASES = "examples,coverage,fuzzing,stateful"
REPLACED = "positive_data_acceptance,missing_required_header"  # by checks in `accepted.py`, which use the schema


@dataclass(frozen=True)
class ContractReport:
    """The result of the requests with one key.

    Args:
        kind: The kind of key.
        requests: The number of requests.
        operations: The number of operations.
        found: The calls that failed a check, by the check's name.
        errors: Errors of schemathesis itself.
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
        """The failures, one per line."""
        failed = [f"{self.kind}, {check}: {', '.join(calls)}" for check, calls in self.found.items()]
        return failed + [f"{self.kind}: {error}" for error in self.errors]


def check_contract(
    site: Site, kind: str, key: str, ids: Mapping[str, Sequence[str]], *, examples: int, number: int
) -> ContractReport:
    """Compare the site's responses with its schema.

    Args:
        site: The site.
        kind: The kind of key.
        key: The key.
        ids: Existing ids, by the name of the parameter.
        examples: The number of requests per operation and phase.
        number: The seed of the random requests.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.toml").write_text(_config(ids))
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "config.toml"), "run"]
        command += [f"http://127.0.0.1:{site.port}/api/v1/schema", "--header", f"Authorization: Bearer {key}"]
        command += [
            "--exclude-path-regex",
            "^/v1/",
        ]  # answers come from the model endpoint, which the site doesn't have
        command += ["--checks", "all", "--exclude-checks", REPLACED, "--phases", PHASES, "--continue-on-failure"]
        command += ["--max-examples", str(examples), "--seed", str(number), "--rate-limit", "auto", "--no-color"]
        # Its health checks measure how fast it generates requests, which depends on the machine.
        command += ["--wait-for-schema", "60", "--suppress-health-check", "all"]
        command += ["--report", "json", "--report-json-path", str(folder / "report.json")]
        hooks = {"SCHEMATHESIS_HOOKS": "drill.trust.accepted"}
        process = subprocess.run(
            command, cwd=BASE_DIR, env=os.environ | hooks, capture_output=True, text=True, check=False
        )
        report = folder / "report.json"
        report_data = json.loads(report.read_text()) if report.exists() else {}
        if not report_data.get("operations"):
            return ContractReport(
                kind,
                0,
                0,
                {},
                [f"schemathesis ended with {process.returncode}: {(process.stdout + process.stderr)[-500:]}"],
            )
        result = parse_report(kind, report_data)
        if result.remarks:
            print(process.stdout)
        return result


def parse_report(kind: str, report: Mapping[str, Any]) -> ContractReport:
    """Return the result in a report of schemathesis."""
    found = {failure["type"]: failure["operations"] for failure in report["failures"]}
    requests, operations = report["test_cases"]["generated"], report["operations"]["tested"]
    return ContractReport(kind, requests, operations, found, [json.dumps(error)[:300] for error in report["errors"]])


def _config(ids: Mapping[str, Sequence[str]]) -> str:
    """Return a TOML configuration where half of the ids in requests are existing ones."""
    known = {name: list(values) for name, values in ids.items() if values}
    lists = [f"[dictionaries.{name}]\nvalues = {json.dumps(values)}\n" for name, values in known.items()]
    bound = [
        f'"{place}.{name}" = {{ dictionary = "{name}", probability = {KNOWN} }}'
        for name in known
        for place in ("path", "query", "body")
    ]
    return "\n".join([*lists, "[parameters]", *bound, ""])
