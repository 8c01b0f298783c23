"""Attack a throw-away installation, and write the figures into docs/trust.md: `make trust`.

MINUTES of load (1), KILLS of each kind of process (3), FUZZ requests (2000), EXAMPLES of requests to each operation
(10), OUTAGE seconds (30), SEED (1) and the PARTS of the drill (all) are variables of the environment.
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import describe_machine
from benchmarks.trust import contract, fuzz, held, isolation, page
from benchmarks.trust.calls import operations
from benchmarks.trust.isolation import FOREIGN, OWN, TOPIC, UNKNOWN, Caller, Upstream
from memoryproject.conf import BASE_DIR
from memoryproject.drill.provider import Provider, well
from memoryproject.drill.recovery import now, wait_until_caught_up
from memoryproject.drill.report import Row, table
from memoryproject.drill.site import Site

TURNS = 60
LOAD_KEYS = 8  # a key has a rate of its own
MAKE_KEYS = """
from sessions_app.models import ApiKey, UserProfile
people = {{name: UserProfile.objects.ensure(name) for name in ("ada", "bo", "stranger")}}
for user, scope in {wanted!r}:
    print("key", ApiKey.objects.issue("trust", user=people.get(user), scope=scope)[1])
"""
IDS = {  # where a person's ids are listed, and under which name
    "session_id": ("sessions", "sessions", "session_id"),
    "key": ("moments", "moments", "key"),
    "job_id": ("jobs", "jobs", "job_id"),
    "stream_id": ("streams", "streams", "stream_id"),
    "entity_id": ("entities", "entities", "entity_id"),
    "retraction_id": ("retractions", "retractions", "retraction_id"),
}
MOST_IDS = 3  # of a kind that are tried


def main() -> int:
    """Do everything, write the page, and return 1 if something went wrong."""
    remarks: list[str] = []
    with Provider() as provider, Site(provider) as site:
        figures = _attacked(site, provider, remarks)
        machine = _machine(site)
    rows = _drilled()
    figures += _of_the_drill(rows)
    remarks += [f"{row.fault}: {'; '.join(row.remarks)}" for row in rows if not row.is_well]
    page.put(page.section(machine, figures, table(rows), remarks))
    for remark in remarks:
        print(remark)
    return 1 if remarks else 0


def _attacked(site: Site, provider: Provider, remarks: list[str]) -> list[page.Figure]:
    service, of_ada, of_ada_reads, reads, of_stranger = _keys(
        site, [("", "admin"), ("ada", "write"), ("ada", "read"), ("", "read"), ("stranger", "write")]
    )
    for person, word in (("ada", OWN), ("bo", FOREIGN)):
        _seed(site, person, word)
    wait_until_caught_up(site, now(), "^nobody$")  # retracted turns have no vectors
    known, schemas = operations(site)
    ids = {name: _ids(site, name, "ada") for name in IDS} | {"user_id": ["ada", "bo", "nobody"]}
    foreign = {name: [one for one in _ids(site, name, "bo") if one not in ids[name]][:MOST_IDS] for name in IDS}
    if empty := [name for name, found in foreign.items() if not found]:
        raise RuntimeError(f"Bo has none of these to ask for: {', '.join(empty)}.")
    foreign |= {"user_id": ["bo"]}

    print(f"Isolation: {len(known)} operations …")
    provider.failure = upstream = Upstream()
    bound = {"is_bound": True}
    callers = [
        Caller(of_ada, {}, **bound),
        Caller(of_ada, {"user_id": "bo"}, **bound),
        Caller(of_stranger, {}, **bound),
        Caller(service, {"user_id": "ada"}, is_bound=False),
    ]
    [[bo]] = site.rows("SELECT id FROM sessions_app_userprofile WHERE user_id = 'bo'")
    probed = isolation.probe(site, known, schemas, callers, foreign, bo)
    leaks = probed.leaks + upstream.leaks
    provider.failure = well

    requests = int(os.environ.get("FUZZ", "2000"))
    print(f"Fuzzing: {requests:,} requests …")
    keys = [service, of_ada, of_ada_reads, ""]
    number = int(os.environ.get("SEED", "1"))
    fuzzed = fuzz.fuzz(site, known, schemas, keys, ids, requests=requests, number=number)

    kinds = {"a service's key that reads": reads, "a person's key": of_ada, "a service's key that may all": service}
    examples = int(os.environ.get("EXAMPLES", "10"))
    answered = []
    for kind, key in kinds.items():  # the last may erase people
        print(f"The description, with {kind} …")
        answered.append(contract.hold(site, kind, key, ids, examples=examples, number=number))
        print(*answered[-1].figure, sep=": ")
        remarks += answered[-1].remarks

    writers, gaps = held.gaps(site)
    minutes = float(os.environ.get("MINUTES", "1"))
    print(f"Load: the highest that is held for {minutes:g} minutes …")
    load = held.highest(site, _keys(site, [("", "write")] * LOAD_KEYS), minutes * 60)
    remarks += leaks + fuzzed.failures
    remarks += [f"{gaps} gaps or missing turns of writers on one session"] if gaps else []
    remarks += [] if load.is_held else [f"No load was held: {load.errors} errors at {load.rate:.0f} appends a second"]
    return [
        ("requests fuzzed", f"{fuzzed.requests:,} to {len(known)} operations", f"{len(fuzzed.failures)} answered 5xx"),
        *(one.figure for one in answered),
        ("isolation probes", f"{probed.probes:,}", f"{len(leaks)} leaks"),
        ("concurrent writers on one session", str(writers), f"{gaps} gaps"),
        (
            "highest load held, appends a second",
            f"{load.rate:.0f} for {minutes:g} min, p99 {load.p99 * 1000:.0f} ms",
            f"{load.errors} errors",
        ),
    ]


def _keys(site: Site, wanted: list[tuple[str, str]]) -> list[str]:
    printed = site.manage("shell", "-v", "0", "-c", MAKE_KEYS.format(wanted=wanted))
    return [line.split()[1] for line in printed.splitlines() if line.startswith("key ")]


def _seed(site: Site, person: str, word: str) -> None:
    """Give a person what there can be: two sessions, moments, a goal, a retraction."""
    for session in ("talk", f"{person}-own"):
        messages = [
            {
                "role": ("user", "assistant")[number % 2],
                "content": f"{word}: part {number} of what {person} says about {TOPIC}.",
            }
            for number in range(TURNS)
        ]
        _ask(site, "POST", f"sessions/{session}/messages", {"user_id": person, "messages": messages})
        _ask(site, "POST", "moments/build", {"user_id": person, "session_id": session, "force": True, "lag": 2})
    goal = {"user_id": person, "kind": "goal", "title": f"Make {word}", "body": f"From {TOPIC}."}
    _ask(site, "POST", "entities", goal)
    retraction = {"user_id": person, "session_id": f"{person}-own", "sequences": [3], "reason": word}
    _ask(site, "POST", "retractions", retraction)


def _ask(site: Site, method: str, path: str, body: Any = None) -> Any:
    status, answer = site.request(method, f"/api/v1/{path}", body)
    if status >= 300:
        raise RuntimeError(f"{method} {path} is answered {status}: {answer.decode()[:300]}")
    return json.loads(answer)


def _ids(site: Site, name: str, person: str) -> list[str]:
    path, listed, field = IDS[name]
    found = _ask(site, "GET", f"{path}?user_id={person}&limit=50")[listed]
    return sorted({str(one[field]) for one in found} - {UNKNOWN})


def _drilled() -> list[Row]:
    """Run the drill as anybody does, and return its rows; what it prints is seen meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "manage.py", "drill", *os.environ.get("PARTS", "").split(), "--json", str(path)]
        command += ["--kills", os.environ.get("KILLS", "3"), "--outage", os.environ.get("OUTAGE", "30")]
        subprocess.run(command, cwd=BASE_DIR, check=False)
        return [Row(**row) for row in json.loads(path.read_text())]


def _of_the_drill(rows: list[Row]) -> list[page.Figure]:
    kills = [row for row in rows if row.fault.startswith("kill -9")]
    restarts = sum(row.times for row in rows if "restart" in row.fault)
    lost, doubled = (sum(getattr(row, name) for row in rows) for name in ("lost", "doubled"))
    acknowledged, rounds, rounds_lost = (
        sum(getattr(row, name) for row in rows) for name in ("acknowledged", "rounds", "rounds_lost")
    )
    return [
        ("kills of processes", str(sum(row.times for row in kills)), _wrong(kills)),
        ("restarts of the database", str(restarts), _wrong([row for row in rows if "restart" in row.fault])),
        ("chat rounds answered to their end during all faults", f"{rounds:,}", f"{rounds_lost} lost"),
        ("turns acknowledged during all faults", f"{acknowledged:,}", f"{lost} lost, {doubled} doubled"),
    ]


def _wrong(rows: list[Row]) -> str:
    lost, doubled, never = (
        sum(row.lost for row in rows),
        sum(row.doubled for row in rows),
        sum(row.seconds.count(None) for row in rows),
    )
    return f"{lost} lost, {doubled} doubled, {never} never well again"


def _machine(site: Site) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=BASE_DIR, capture_output=True, text=True, check=False
    ).stdout.strip()
    with site.connect() as connection:
        info = connection.info
        machine = describe_machine(f"host={info.host} dbname={info.dbname} user={info.user}")
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {commit or 'unknown'}. {machine}"


if __name__ == "__main__":
    sys.exit(main())
