"""Attack a throw-away installation, and write the figures into docs/trust.md: `make trust`.

The environment variables are MINUTES of load (1), KILLS of each kind of process (3), FUZZ requests (2000), EXAMPLES per
operation (10), OUTAGE seconds (30), SEED (1), the PARTS of the drill (all), and DRILLED, a file with the rows of
earlier parts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import describe_machine
from drill.poison import report as poison
from drill.provider import Provider
from drill.report import Row, summary
from drill.site import Site
from drill.trust import attacks, page
from memoryproject.conf import BASE_DIR

SITE = {"OAUTH__SITE": "http://localhost"}  # required for valid tokens


def main(arguments: list[str]) -> int:
    """Run everything, write the page, and return 1 if something went wrong."""
    argparse.ArgumentParser(prog="python -m drill.trust", description=__doc__).parse_args(arguments)
    with Provider() as provider, Site(provider, variables=SITE) as site:
        outcome = attacks.all_on(site, provider)
        machine = _machine(site)
    rows = _drilled()
    planted = _poisoned()
    figures = [*outcome.figures, *_of_the_drill(rows), _of_attacks(planted)]
    remarks = [*outcome.remarks]
    remarks += [f"{row.fault}: {'; '.join(row.remarks)}" for row in rows if not row.is_well]
    remarks += [remark for row in planted for remark in row.remarks()]
    page.put(page.section(machine, figures, f"{summary(rows)}\n\n{poison.summary(planted)}", remarks))
    for remark in remarks:
        print(remark)
    return 1 if remarks else 0


def _drilled() -> list[Row]:
    """Run the drill as a command and return its rows. Its output stays visible."""
    kills, outage = os.environ.get("KILLS", "3"), os.environ.get("OUTAGE", "30")
    parts, drilled = os.environ.get("PARTS", "").split(), os.environ.get("DRILLED")
    after = ["--after", drilled] if drilled else []
    return [Row(**row) for row in _rows_of("drill", *parts, "--kills", kills, "--outage", outage, *after)]


def _poisoned() -> list[poison.Row]:
    """Plant every attack through every entry point, and return the results."""
    return [poison.Row(**row) for row in _rows_of("drill.poison")]


def _rows_of(*command: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        subprocess.run([sys.executable, "-m", *command, "--json", str(path)], cwd=BASE_DIR, check=False)
        return json.loads(path.read_text())


def _of_attacks(rows: list[poison.Row]) -> page.Figure:
    seen, out, left, changed = (
        sum(len(getattr(row, name)) for row in rows) for name in ("others", "escapes", "after", "changed")
    )
    wrong = f"{seen} seen by others, {out} outside a fence; after retraction, {left} traces, {changed} contexts changed"
    return "planted texts (see below)", str(sum(row.door != "all" for row in rows)), wrong


def _of_the_drill(rows: list[Row]) -> list[page.Figure]:
    kills = [row for row in rows if row.fault.startswith("kill -9")]
    restarts = sum(row.times for row in rows if "restart" in row.fault)
    lost, doubled = (sum(getattr(row, name) for row in rows) for name in ("lost", "doubled"))
    acknowledged, rounds, rounds_lost = (
        sum(getattr(row, name) for row in rows) for name in ("acknowledged", "rounds", "rounds_lost")
    )
    return [
        ("killed processes", str(sum(row.times for row in kills)), _wrong(kills)),
        ("database restarts", str(restarts), _wrong([row for row in rows if "restart" in row.fault])),
        ("chat rounds completed during faults", f"{rounds:,}", f"{rounds_lost} lost"),
        ("turns acknowledged during faults", f"{acknowledged:,}", f"{lost} lost, {doubled} duplicated"),
    ]


def _wrong(rows: list[Row]) -> str:
    lost, doubled, never = (
        sum(row.lost for row in rows),
        sum(row.doubled for row in rows),
        sum(row.seconds.count(None) for row in rows),
    )
    return f"{lost} lost, {doubled} duplicated, {never} not recovered"


def _machine(site: Site) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=BASE_DIR, capture_output=True, text=True, check=False
    ).stdout.strip()
    with site.connect() as connection:
        info = connection.info
        machine = describe_machine(f"host={info.host} dbname={info.dbname} user={info.user}")
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit or 'unknown'}. {machine}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
