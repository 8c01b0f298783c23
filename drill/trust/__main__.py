"""Attack a throw-away installation, and write the figures into docs/trust.md: `make trust`.

MINUTES of load (1), KILLS of each kind of process (3), FUZZ requests (2000), EXAMPLES of requests to each operation
(10), OUTAGE seconds (30), SEED (1), the PARTS of the drill (all) and DRILLED, a file with the rows of earlier parts,
are variables of the environment.
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
from drill.poison import report as poison
from drill.provider import Provider, well
from drill.recovery import now, wait_until_caught_up
from drill.report import Row, table
from drill.site import Site
from drill.trust import contract, fuzz, held, isolation, neighbor, page
from drill.trust.calls import Operation, Schema, operations
from drill.trust.isolation import FOREIGN, OF_FIRST, OWN, Caller, Probed, Upstream
from drill.trust.people import IDS, Known, have_a_prompt, seed
from memoryproject.conf import BASE_DIR

LOAD_KEYS = 8  # a key has a rate of its own
MAKE_KEYS = """
from sessions_app.models import ApiKey, Application, UserProfile
for user, scope, name in {wanted!r}:
    application = Application.objects.get_or_create(name=name)[0].pk
    person = UserProfile.objects.ensure(user, application) if user else None
    print("key", ApiKey.objects.issue("trust", user=person, application=application, scope=scope)[1])
"""
# Tokens for REST, as an assistant gets them that an operator granted access.
MAKE_TOKENS = """
from datetime import timedelta
from django.utils import timezone
from memory_extras.oauth.audiences import REST, resource_of
from memory_extras.oauth.conf import new_access_token
from memory_extras.oauth.models import AccessToken, Assistant, Consent
from oauth2_provider.models import set_token_value
from sessions_app.models import UserProfile
assistant = Assistant.objects.register("trust", ["http://localhost:3333/callback"])
ends_at, scopes = timezone.now() + timedelta(days=1), ["read", "write", "export"]
for user, name in {wanted!r}:
    person, text = UserProfile.objects.get(user_id=user, application__name=name), new_access_token(None)
    consent = Consent.objects.allow(assistant, user=person, scopes=scopes, ends_at=ends_at, by="operator:trust")
    token = AccessToken(consent=consent, application=assistant, scope=consent.scope, expires=ends_at)
    token.resource = [resource_of(REST)]
    set_token_value(token, text)
    token.save()
    print("key", text)
"""
SITE = {"OAUTH__SITE": "http://localhost"}  # without which no token is valid
MOST_IDS = 3  # of a kind that are tried
METRICS = Operation("GET", "/metrics")
AS_OF = "2026-06-01"
FIRST, SECOND = "default", "second"  # applications


def main() -> int:
    """Do everything, write the page, and return 1 if something went wrong."""
    remarks: list[str] = []
    with Provider() as provider, Site(provider, variables=SITE) as site:
        figures = _attacked(site, provider, remarks)
        machine = _machine(site)
    rows = _drilled()
    attacks = _poisoned()
    figures += [*_of_the_drill(rows), _of_attacks(attacks)]
    remarks += [f"{row.fault}: {'; '.join(row.remarks)}" for row in rows if not row.is_well]
    remarks += [remark for row in attacks for remark in row.remarks()]
    page.put(page.section(machine, figures, f"{table(rows)}\n\n{poison.table(attacks)}", remarks))
    for remark in remarks:
        print(remark)
    return 1 if remarks else 0


def _attacked(site: Site, provider: Provider, remarks: list[str]) -> list[page.Figure]:
    service, of_ada, of_ada_reads, reads, of_stranger = _keys(
        site, [("", "admin"), ("ada", "write"), ("ada", "read"), ("", "read"), ("stranger", "write")]
    )
    for person, word in (("ada", OWN), ("bo", FOREIGN)):
        seed(Known(site, service, person), word)
    of_second, of_its_bo = _keys(site, [("", "admin"), ("bo", "write")], SECOND)
    for person in ("ada", "bo"):  # who have the same names there, and nothing of what Bo says here
        seed(Known(site, of_second, person), OWN)
    have_a_prompt(site, service)
    to_ada, to_its_bo = _printed_keys(site, MAKE_TOKENS.format(wanted=[("ada", FIRST), ("bo", SECOND)]))
    wait_until_caught_up(site, now(), "^nobody$")  # retracted turns have no vectors
    known, schemas = operations(site)
    ada, bo = Known(site, service, "ada"), Known(site, service, "bo")
    ids = {name: ada.ids(name) for name in IDS} | {"user_id": ["ada", "bo", "nobody"]}
    bos = {name: bo.ids(name) for name in IDS}
    foreign = {name: [one for one in bos[name] if one not in ids[name]][:MOST_IDS] for name in IDS}
    if empty := [name for name, found in foreign.items() if not found]:
        raise RuntimeError(f"Bo has none of these to ask for: {', '.join(empty)}.")

    print(f"Isolation: {len(known)} operations …")
    here = [
        Caller(of_ada, {}, is_bound=True),
        Caller(of_ada, {"user_id": "bo"}, is_bound=True),
        Caller(of_stranger, {}, is_bound=True),
        Caller(to_ada, {}, is_bound=True),
        Caller(to_ada, {"user_id": "bo"}, is_bound=True),
        Caller(service, {"user_id": "ada"}, is_bound=False),
        Caller(service, {"user_id": "ada", "as_of": AS_OF}, is_bound=False),
    ]
    namesakes = [
        Caller(of_second, {"user_id": "bo"}, is_bound=False, is_of_other=True),
        *(Caller(key, {}, is_bound=True, is_of_other=True) for key in (of_its_bo, to_its_bo)),
    ]
    elsewhere = [Caller(of_second, {"user_id": "ada"}, is_bound=True, is_of_other=True)]
    unnamed = {name: found for name, found in foreign.items() if name != "session_id"}
    unnamed |= {"user_id": ["stranger"], "name": [OF_FIRST]}
    asked = [(here, foreign | {"user_id": ["bo"]}), (namesakes, unnamed), (elsewhere, foreign | unnamed)]
    probed = _isolated(site, provider, known, schemas, asked)

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
    print("A noisy neighbor …")
    flooder, of_flooder = _keys(site, [("", "read"), ("", "write")], SECOND)
    disturbed = neighbor.disturb(site, flooder, of_flooder, *_keys(site, [("", "write")]))
    remarks += disturbed.remarks
    remarks += probed.leaks + fuzzed.failures
    remarks += [f"{gaps} gaps or missing turns of writers on one session"] if gaps else []
    remarks += [] if load.is_held else [f"No load was held: {load.errors} errors at {load.rate:.0f} appends a second"]
    return [
        ("requests fuzzed", f"{fuzzed.requests:,} to {len(known)} operations", f"{len(fuzzed.failures)} answered 5xx"),
        *(one.figure for one in answered),
        ("isolation probes, over two applications", f"{probed.probes:,}", f"{len(probed.leaks)} leaks"),
        ("concurrent writers on one session", str(writers), f"{gaps} gaps"),
        (
            "highest load held, appends a second",
            f"{load.rate:.0f} for {minutes:g} min, p99 {load.p99 * 1000:.0f} ms",
            f"{load.errors} errors",
        ),
        *disturbed.figures,
    ]


def _isolated(
    site: Site,
    provider: Provider,
    known: list[Operation],
    schemas: dict[str, Schema],
    asked: list[tuple[list[Caller], dict[str, list[str]]]],
) -> Probed:
    """Have callers ask for what is Bo's, each for some of it; then do without the filters of the code."""
    provider.failure = upstream = Upstream()
    [[bo]] = site.rows("SELECT id FROM sessions_app_userprofile WHERE user_id = 'bo' AND application_id = 1")
    found = Probed()
    for callers, foreign in asked:
        found += isolation.probe(site, [*known, METRICS], schemas, callers, foreign, bo)
    found += isolation.imported(site, SECOND, bo)
    found += isolation.without_filters(site, bo)
    found += isolation.operators_pages(site, "bo", FIRST, SECOND)
    found.leaks += upstream.leaks
    provider.failure = well
    return found


def _keys(site: Site, wanted: list[tuple[str, str]], application: str = FIRST) -> list[str]:
    named = [(person, scope, application) for person, scope in wanted]
    return _printed_keys(site, MAKE_KEYS.format(wanted=named))


def _printed_keys(site: Site, source: str) -> list[str]:
    printed = site.manage("shell", "-v", "0", "-c", source)
    return [line.split()[1] for line in printed.splitlines() if line.startswith("key ")]


def _drilled() -> list[Row]:
    """Run the drill as anybody does, and return its rows; what it prints is seen meanwhile."""
    kills, outage = os.environ.get("KILLS", "3"), os.environ.get("OUTAGE", "30")
    parts, drilled = os.environ.get("PARTS", "").split(), os.environ.get("DRILLED")
    after = ["--after", drilled] if drilled else []
    return [Row(**row) for row in _rows_of("drill", *parts, "--kills", kills, "--outage", outage, *after)]


def _poisoned() -> list[poison.Row]:
    """Plant every attack by every door, and return what came of each."""
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
    wrong = f"{seen} seen by others, {out} out of a fence, {left} left and {changed} contexts changed after retraction"
    return "attacks planted, by four doors and with two engines", str(sum(row.door != "all" for row in rows)), wrong


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
