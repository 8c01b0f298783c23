"""The faults by their names in the command, in the order of the drill."""

from collections.abc import Callable, Iterator

from drill.course import Course
from drill.faults import acts, backup, database, disk, kills, providers, stalls, upgrade
from drill.report import Row

PARTS: dict[str, Callable[[Course], Iterator[Row]]] = {
    "kills": kills.each_kind,
    "acts": acts.done_once,
    "hang": database.hang,
    "restart": database.restart,
    "stalls": stalls.each,
    "disk": disk.full,
    "keys": providers.keys,
    "outage": providers.outage,
    "refused": providers.refused,
    "failing": providers.failing,
    "backup": backup.restored,
    "upgrade": upgrade.from_the_last_release,
}
