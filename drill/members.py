"""The processes of a site, by their kind."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from drill.site import Site

WEB_SERVER, WATCH, WORKER = "The web server", "The watchdog", "Worker "  # as the processes call themselves
CLIENT = "[local]"  # in the title of a database process that serves one


def _command(process: psutil.Process) -> str:
    """Return a process's command line; blank when it has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _workers(site: Site, *, busy: bool) -> list[psutil.Process]:
    """Return the workers that have a job, or those that have none: a job has a thread that tells it is alive."""
    return [process for process in _named(site, WORKER) if (process.num_threads() > 1) == busy]


def _named(site: Site, name: str) -> list[psutil.Process]:
    """Return the children of the root with a name that starts so."""
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
OF_THE_DATABASE = {"database backend", "database postmaster"}


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
