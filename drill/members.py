"""The processes of a site by kind."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from drill.site import Site

WEB_SERVER, WATCH, WORKER = "The web server", "The watchdog", "Worker "  # the names that the processes set
CLIENT = "[local]"  # in the title of a database process with a client


def _command(process: psutil.Process) -> str:
    """Return a process's command line, or a blank string if it has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _workers(site: Site, *, busy: bool) -> list[psutil.Process]:
    """Return the workers with a job, or those without one. A worker has a heartbeat thread while it runs a job."""
    return [process for process in _named(site, WORKER) if (process.num_threads() > 1) == busy]


def _named(site: Site, name: str) -> list[psutil.Process]:
    """Return the children of the root whose name starts with a text."""
    return [process for process in site.root.children() if process.name().startswith(name)]


def _backends(site: Site) -> list[psutil.Process]:
    return [process for process in site.database()[1:] if CLIENT in _command(process)]


ROOT = "root process, then started again"

_KINDS: dict[str, Callable[[Site], Sequence[psutil.Process]]] = {
    "web worker": lambda site: [child for server in _named(site, WEB_SERVER) for child in server.children()],
    "web server": lambda site: _named(site, WEB_SERVER),
    "idle queue worker": lambda site: _workers(site, busy=False),
    "queue worker with a job": lambda site: _workers(site, busy=True),
    "watchdog": lambda site: _named(site, WATCH),
    "database backend": _backends,
    "database postmaster": lambda site: site.database()[:1],
    ROOT: lambda site: [site.root],
}
DATABASE_KINDS = {"database backend", "database postmaster"}


def kinds(site: Site) -> list[str]:
    """Return the kinds of the site's own processes."""
    return [kind for kind in _KINDS if site.is_embedded or kind not in DATABASE_KINDS]


def of_kind(site: Site, kind: str) -> list[psutil.Process]:
    """Return the current processes of a kind."""
    with suppress(psutil.Error):
        return list(_KINDS[kind](site))
    return []


def any_alive(processes: Sequence[psutil.Process]) -> bool:
    """Return whether one of them is running."""
    for process in processes:
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False
