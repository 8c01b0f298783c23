"""A backup while clients work, restored into another installation, which is then verified and queried."""

import time
from collections.abc import Iterator

from drill.course import Course
from drill.database import temporary_database
from drill.ledger import Ledger, compare
from drill.load import append
from drill.recovery import wait_until_ready
from drill.report import Row
from drill.site import Site, found_by_search

BEFORE_SECONDS = 3.0  # of the clients' work before the backup
PERSON, SAID = "drill-backup", "The spare key lies under the blue flowerpot."


def restored(course: Course) -> Iterator[Row]:
    """Back up, restore, verify, start, and query."""
    with course.fault("backup under load, restored elsewhere") as fault:
        append(course.site, fault.ledger, PERSON, text=SAID)
        time.sleep(BEFORE_SECONDS)
        there, path = fault.ledger.acknowledged(), course.site.folder / "drill.backup"
        began = time.monotonic()
        course.site.manage("backup", str(path))

        def restore(other: Site) -> None:
            other.manage("restore", str(path))
            other.manage("verify", str(path))
            other.key = course.site.key

        with (
            temporary_database(course.database_url) as database,
            Site(course.provider, database, before=restore) as other,
        ):
            found_by_search(other, PERSON, "Where is the spare key?", "blue flowerpot")
            count = compare(there, there, other.turns())
            fault.row.remark(f"{count.lost} of {count.acknowledged} turns missing")
            wait_until_ready(other, Ledger())
        fault.row.times = 1
        fault.row.seconds.append(time.monotonic() - began)
    fault.row.lost += count.lost
    fault.row.doubled += count.doubled
    yield fault.row
