"""The current code on data of the last release: it starts, finds earlier messages, and continues with them."""

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

from drill.course import Course
from drill.database import temporary_database
from drill.ledger import Ledger
from drill.recovery import now, wait_until_caught_up, wait_until_ready
from drill.report import Row, not_tried
from drill.site import Site, SiteNotReady, found_by_search
from memoryproject.conf import BASE_DIR

STATES = BASE_DIR / "tests" / "earlier"  # a database of each release, newest last
PERSON, SESSION = "ada", "ada-0"
# Roles belong to the server, so the dump of a database doesn't create them.
FILL = """
import gzip
from django.db import DatabaseError, connection
from sessions_app.database.database_roles import ADMIN_ROLE, WEB_ROLE, WORKER_ROLE
from sessions_app.limited_operators import OPERATOR_ROLE
from sessions_app.row_security import ROLE
with connection.cursor() as cursor:
    for role in (ROLE, OPERATOR_ROLE, WEB_ROLE, ADMIN_ROLE, WORKER_ROLE):
        try:
            cursor.execute(f"CREATE ROLE {{role}} NOLOGIN NOINHERIT")
        except DatabaseError:
            pass  # another database of the server has it already
    cursor.execute(gzip.open({path!r}, "rt").read())
"""
TURNS = "SELECT count(*) FROM sessions_app_message WHERE kind IN ('turn', 'archived')"


def from_the_last_release(course: Course) -> Iterator[Row]:
    """Start on the data of the last release, search for earlier messages, and append new ones."""
    states = sorted(STATES.glob("*.sql.gz"))
    if not states:
        yield not_tried("upgrade from the last release", "its data is not here: it comes with the tests")
        return
    course.say("upgrade from the last release …")
    row = Row(f"upgrade from the last release ({states[-1].name.removesuffix('.sql.gz')})", times=1)
    began = time.monotonic()
    try:
        with temporary_database(course.database_url) as database:
            _upgrade(course, database, states[-1], row)
        row.seconds.append(time.monotonic() - began)
    except SiteNotReady as error:
        row.never(str(error))
    course.say(f"  {row.outcome()}")
    yield row


def _upgrade(course: Course, database: str, state: Path, row: Row) -> None:
    def fill(site: Site) -> None:
        site.manage("shell", "-v", "0", "-c", FILL.format(path=str(state)))
        row.acknowledged = site.number(TURNS)
        with gzip.open(state, "rt") as file:
            site.key = file.readline().split()[1]

    with Site(course.provider, database, before=fill) as site:
        found_by_search(site, PERSON, "When does the ferry leave?", "Thursdays at seven")
        ledger = Ledger()
        wait_until_ready(site, ledger, PERSON)
        wait_until_caught_up(site, now(), PERSON)
        after = ledger.count(site.turns())
        row.lost = max(row.acknowledged + after.acknowledged - site.number(TURNS), 0) + after.lost
        row.doubled = after.doubled
        query = f"user_id={PERSON}&session_id={SESSION}&query=Which+color+are+the+railings%3F"
        status, context = site.request("GET", f"/api/v1/memory/context?{query}")
        if status != 200 or "Saffron yellow" not in context.decode():
            raise SiteNotReady(f"The context lacks the messages from before the upgrade (status {status}).")
        site.manage("verify")
