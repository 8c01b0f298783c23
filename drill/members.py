"""The processes of a site, by their kind."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from drill.site import Site

WEB_SERVER, WORKERS, KEEPER = "gunicorn", "qcluster", "memoryproject.embedded.keeper"  # in a command line
CLOCK, WATCH, WORKER = "The scheduler", "The watchdog", "Worker "  # as the processes call themselves
CLIENT = "[local]"  # in the title of a database process that serves one


def _children(site: Site, command: str) -> list[psutil.Process]:
    """Return the children of the root with this in their command."""
    return [process for process in site.root.children() if command in _command(process)]


def _command(process: psutil.Process) -> str:
    """Return a process's command line; blank when it has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _grandchildren(site: Site, command: str) -> list[psutil.Process]:
    return [process for child in _children(site, command) for process in child.children()]


def _workers(site: Site, *, busy: bool) -> list[psutil.Process]:
    """Return the workers that have a job, or those that have none: a job has a thread that tells it is alive."""
    return [process for process in _named(site, WORKER) if (process.num_threads() > 1) == busy]


def _named(site: Site, name: str) -> list[psutil.Process]:
    return [process for process in _grandchildren(site, WORKERS) if process.name().startswith(name)]


def _backends(site: Site) -> list[psutil.Process]:
    return [process for process in site.database()[1:] if CLIENT in _command(process)]


ROOT = "root, started again"

_KINDS: dict[str, Callable[[Site], Sequence[psutil.Process]]] = {
    "web worker": lambda site: _grandchildren(site, WEB_SERVER),
    "web server": lambda site: _children(site, WEB_SERVER),
    "idle queue worker": lambda site: _workers(site, busy=False),
    "queue worker with a job": lambda site: _workers(site, busy=True),
    "clock": lambda site: _named(site, CLOCK),
    "watchdog": lambda site: _named(site, WATCH),
    "queue supervisor": lambda site: _children(site, WORKERS),
    "database keeper": lambda site: _children(site, KEEPER),
    "database backend": _backends,
    "database postmaster": lambda site: site.database()[:1],
    ROOT: lambda site: [site.root],
}
OF_THE_DATABASE = {"database keeper", "database backend", "database postmaster"}


def kinds(site: Site) -> list[str]:
    """Return the kinds of processes that are the site's own."""
    return [kind for kind in _KINDS if site.is_embedded or kind not in OF_THE_DATABASE]


def of_kind(site: Site, kind: str) -> list[psutil.Process]:
    """Return the processes of a kind that are there just now."""
    with suppress(psutil.Error):
        return list(_KINDS[kind](site))
    return []


def any_alive(processes: Sequence[psutil.Process]) -> bool:
    """Return True while one of them is there and does something."""
    for process in processes:
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
