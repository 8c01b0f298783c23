"""The attacks on a site: functions that take the target. `ATTACKS` lists them in order."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from drill.provider import Provider, no_failure
from drill.recovery import MATCHES_NOBODY, now, wait_until_caught_up
from drill.site import Site
from drill.trust import contract, fuzz, held, isolation, neighbor
from drill.trust.calls import Operation, Schema, operations
from drill.trust.isolation import FOREIGN, OF_FIRST, OWN, ForeignCaller, ProbeReport, Upstream
from drill.trust.page import Figure
from drill.trust.people import IDS, SeededPerson, have_a_prompt, seed

LOAD_KEYS = 8  # each key has its own rate limit
MAKE_KEYS = """
from sessions_app.models import ApiKey, Application, UserProfile
for user, scope, name in {wanted!r}:
    application = Application.objects.get_or_create(name=name)[0].pk
    person = UserProfile.objects.ensure(user, application) if user else None
    print("key", ApiKey.objects.issue("trust", user=person, application=application, scope=scope)[1])
"""
# Tokens for REST, issued as for an assistant that an operator granted access.
MAKE_TOKENS = """
from datetime import timedelta
from django.utils import timezone
from memory_extras.oauth.conf import REST, new_access_token, resource_of
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
MAX_IDS = 3  # of a kind to try
METRICS = Operation("GET", "/metrics")
AS_OF = "2026-06-01"
FIRST, SECOND = "default", "second"  # applications


@dataclass(frozen=True)
class Target:
    """A site with Ada and Bo in its first application, and with people of the same names in its second.

    Args:
        site: The site.
        provider: Its model.
        service: A service key of the first application with scope `admin`.
        reads: A service key of the first application with scope `read`.
        of_ada: Ada's own key.
        of_ada_reads: Ada's own key with scope `read`.
        operations: The operations in the site's schema.
        schemas: The schemas of their bodies.
        ids: The ids of Ada's data, by kind.
        foreign: The ids of Bo's data, by kind.
    """

    site: Site
    provider: Provider
    service: str
    reads: str
    of_ada: str
    of_ada_reads: str
    operations: list[Operation]
    schemas: dict[str, Schema]
    ids: dict[str, list[str]]
    foreign: dict[str, list[str]]


@dataclass(frozen=True)
class Outcome:
    """The rows that an attack adds to the page, and its failures."""

    figures: Sequence[Figure]
    remarks: Sequence[str] = field(default_factory=list)


Attack = Callable[[Target], Outcome]


def all_on(site: Site, provider: Provider) -> Outcome:
    """Run all attacks on a site."""
    target = _prepared(site, provider)
    figures: list[Figure] = []
    remarks: list[str] = []
    for title, attack in ATTACKS.items():
        print(f"{title} …")
        outcome = attack(target)
        figures += outcome.figures
        remarks += outcome.remarks
    return Outcome(figures, remarks)


def isolate(target: Target) -> Outcome:
    """Request Bo's data as other callers, by every operation, on operators' pages, and without filters in the code."""
    site = target.site
    [of_stranger] = _keys(site, [("stranger", "write")])
    of_second, of_its_bo = _keys(site, [("", "admin"), ("bo", "write")], SECOND)
    to_ada, to_its_bo = _printed_keys(site, MAKE_TOKENS.format(wanted=[("ada", FIRST), ("bo", SECOND)]))
    here = [
        *(ForeignCaller(key, {}, is_bound=True) for key in (target.of_ada, of_stranger, to_ada)),
        *(ForeignCaller(key, {"user_id": "bo"}, is_bound=True) for key in (target.of_ada, to_ada)),
        ForeignCaller(target.service, {"user_id": "ada"}, is_bound=False),
        ForeignCaller(target.service, {"user_id": "ada", "as_of": AS_OF}, is_bound=False),
    ]
    namesakes = [
        ForeignCaller(of_second, {"user_id": "bo"}, is_bound=False, is_of_other=True),
        *(ForeignCaller(key, {}, is_bound=True, is_of_other=True) for key in (of_its_bo, to_its_bo)),
    ]
    elsewhere = [ForeignCaller(of_second, {"user_id": "ada"}, is_bound=True, is_of_other=True)]
    unnamed = {name: found for name, found in target.foreign.items() if name != "session_id"}
    unnamed |= {"user_id": ["stranger"], "name": [OF_FIRST]}
    asked = [
        (here, target.foreign | {"user_id": ["bo"]}),
        (namesakes, unnamed),
        (elsewhere, target.foreign | unnamed),
    ]
    probed = _isolated(target, asked)
    what, leaks = "attempts in two applications to read other people's data", f"{len(probed.leaks)} leaks"
    return Outcome([(what, f"{probed.probes:,}", leaks)], probed.leaks)


def send_noise(target: Target) -> Outcome:
    """Send random requests to every operation. None may get a 5xx."""
    fuzzed = fuzz.fuzz(
        target.site,
        target.operations,
        target.schemas,
        [target.service, target.of_ada, target.of_ada_reads, ""],
        target.ids,
        requests=int(os.environ.get("FUZZ", "2000")),
        number=_seed(),
    )
    much = f"{fuzzed.requests:,} to {len(target.operations)} operations"
    return Outcome([("random requests", much, f"{len(fuzzed.failures)} × 5xx")], fuzzed.failures)


def describe(target: Target) -> Outcome:
    """Compare the site's responses with its schema, with three kinds of key. The last one may erase people."""
    kinds = {
        "service key, scope read": target.reads,
        "user key": target.of_ada,
        "service key, scope admin": target.service,
    }
    examples = int(os.environ.get("EXAMPLES", "10"))
    answered = []
    for kind, key in kinds.items():
        answered.append(contract.check_contract(target.site, kind, key, target.ids, examples=examples, number=_seed()))
        print(*answered[-1].figure, sep=": ")
    return Outcome([one.figure for one in answered], [remark for one in answered for remark in one.remarks])


def write_at_once(target: Target) -> Outcome:
    """Append to one session with many concurrent writers. No turn may be missing."""
    writers, gaps = held.gaps(target.site)
    remarks = [f"{gaps} gaps or missing turns of writers on one session"] if gaps else []
    return Outcome([("concurrent writers on one session", str(writers), f"{gaps} gaps")], remarks)


def load(target: Target) -> Outcome:
    """Find the highest load that the site sustains."""
    minutes = float(os.environ.get("MINUTES", "1"))
    found = held.highest(target.site, _keys(target.site, [("", "write")] * LOAD_KEYS), minutes * 60)
    much = f"{found.rate:.0f} for {minutes:g} min, p99 {found.p99 * 1000:.0f} ms"
    wrong = f"No load was sustained: {found.errors} errors at {found.rate:.0f} appends per second"
    figure = ("highest sustained appends per second", much, f"{found.errors} errors")
    return Outcome([figure], [] if found.is_held else [wrong])


def flood(target: Target) -> Outcome:
    """Measure the response times of one application while a key of another floods the site."""
    flooder, of_flooder = _keys(target.site, [("", "read"), ("", "write")], SECOND)
    disturbed = neighbor.disturb(target.site, flooder, of_flooder, *_keys(target.site, [("", "write")]))
    return Outcome(disturbed.figures, disturbed.remarks)


ATTACKS: Mapping[str, Attack] = {
    "Isolation": isolate,
    "Fuzzing": send_noise,
    "The description": describe,
    "Writers on one session": write_at_once,
    "The highest sustained load": load,
    "A noisy neighbor": flood,
}


def _prepared(site: Site, provider: Provider) -> Target:
    service, of_ada, of_ada_reads, reads = _keys(site, [("", "admin"), ("ada", "write"), ("ada", "read"), ("", "read")])
    for person, word in (("ada", OWN), ("bo", FOREIGN)):
        seed(SeededPerson(site, service, person), word)
    [of_second] = _keys(site, [("", "admin")], SECOND)
    for person in ("ada", "bo"):  # people with the same names, without any of Bo's texts
        seed(SeededPerson(site, of_second, person), OWN)
    have_a_prompt(site, service)
    wait_until_caught_up(site, now(), MATCHES_NOBODY)  # retracted turns have no vectors
    known, schemas = operations(site)
    ada, bo = SeededPerson(site, service, "ada"), SeededPerson(site, service, "bo")
    ids = {name: ada.ids(name) for name in IDS} | {"user_id": ["ada", "bo", "nobody"]}
    foreign = {name: [one for one in bo.ids(name) if one not in ids[name]][:MAX_IDS] for name in IDS}
    if empty := [name for name, found in foreign.items() if not found]:
        raise RuntimeError(f"Bo has no ids of these kinds: {', '.join(empty)}.")
    return Target(site, provider, service, reads, of_ada, of_ada_reads, known, schemas, ids, foreign)


def _isolated(target: Target, asked: list[tuple[list[ForeignCaller], dict[str, list[str]]]]) -> ProbeReport:
    """Request Bo's data as several callers, and then read tables without the code's filters."""
    site, upstream = target.site, Upstream()
    target.provider.failure = upstream
    [[bo]] = site.rows("SELECT id FROM sessions_app_userprofile WHERE user_id = 'bo' AND application_id = 1")
    found = ProbeReport()
    for callers, foreign in asked:
        found += isolation.probe(site, [*target.operations, METRICS], target.schemas, callers, foreign, bo)
    found += isolation.imported(site, SECOND, bo)
    found += isolation.without_filters(site, bo)
    found += isolation.operators_pages(site, "bo", FIRST, SECOND)
    found.leaks += upstream.leaks
    target.provider.failure = no_failure
    return found


def _seed() -> int:
    return int(os.environ.get("SEED", "1"))


def _keys(site: Site, wanted: list[tuple[str, str]], application: str = FIRST) -> list[str]:
    named = [(person, scope, application) for person, scope in wanted]
    return _printed_keys(site, MAKE_KEYS.format(wanted=named))


def _printed_keys(site: Site, source: str) -> list[str]:
    printed = site.manage("shell", "-v", "0", "-c", source)
    return [line.split()[1] for line in printed.splitlines() if line.startswith("key ")]
