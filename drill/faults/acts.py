"""kill -9 during actions that must take effect once, and a backup of the result, restored elsewhere."""

from collections.abc import Iterator

from drill.acts import ActingClients
from drill.course import Course, Fault
from drill.database import temporary_database
from drill.faults.kills import kill_one
from drill.members import ROOT, kinds
from drill.report import Row
from drill.site import Site
from drill.waits import Picker

KILLED_KINDS = (
    "web worker",
    "web server",
    "queue worker with a job",
    "database backend",
    "database postmaster",
    ROOT,
)


def done_once(course: Course) -> Iterator[Row]:
    """Kill web, worker and database processes, one kind after the other, and count the actions' effects."""
    hurt = [kind for kind in KILLED_KINDS if kind in kinds(course.site)]
    fault = Fault(Row("kill -9 during corrections, retractions, probes and contexts"))
    picker, rows = Picker(course.chance), []
    course.say(f"{fault.row.fault}: {course.kills} of each of {len(hurt)} kinds …")
    with course.with_clients([fault], clients=1) as tracker:
        with ActingClients(course.site) as acting:
            for number in range(course.kills):
                for kind in course.chance.sample(hurt, len(hurt)):
                    killed = kill_one(course, tracker, kind, picker, by_place=number % 2 == 0)
                    fault.row.seconds.append(killed.seconds)
        rows = [*acting.rows(course.site, fault.row.times), *_restored(course, acting, fault.row.times)]
    for row in rows:
        course.say(f"  {row.outcome()}")
    yield from (fault.row, *rows)


def _restored(course: Course, acting: ActingClients, times: int) -> list[Row]:
    """Restore a backup elsewhere, and count the effects there."""
    path = course.site.folder / "acts.backup"
    course.site.manage("backup", str(path))

    def restore(other: Site) -> None:
        other.manage("restore", str(path))
        other.manage("verify", str(path))
        other.key = course.site.key

    with temporary_database(course.database_url) as database, Site(course.provider, database, before=restore) as other:
        return acting.rows(other, times, ", in a restored backup")
