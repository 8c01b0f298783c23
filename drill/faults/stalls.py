"""Clients that delay others: a locked row, bodies that never end, responses that are never read."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from drill.course import Course
from drill.load import append
from drill.recovery import wait_until_ready
from drill.report import Row
from drill.site import Site
from drill.watch import Prober

STALL_SECONDS = 15
SOCKETS = 30
WAITING = 12  # clients that append to the locked session
PERSON, LOCKED = "drill-prober", "drill-locked"
MAX_PROBE_SECONDS = 1.0  # maximum seconds that other clients may wait

Stall = Callable[[Site], "ExitStack"]


def each(course: Course) -> Iterator[Row]:
    """Stall the site in each way, while a prober runs."""
    for name, stall in (
        ("session row locked", _locked_row),
        (f"{SOCKETS} unfinished request bodies", _slow_bodies),
        (f"{SOCKETS} unread responses", _slow_readers),
    ):
        with course.fault(f"{name} for {STALL_SECONDS} s", clients=1) as fault:
            for person in (PERSON, LOCKED):
                append(course.site, fault.ledger, person)
            with Prober(course.site, PERSON) as prober, stall(course.site):
                time.sleep(STALL_SECONDS)
            began = time.monotonic()
            wait_until_ready(course.site, fault.ledger)
            append(course.site, fault.ledger, LOCKED)
            fault.row.times, fault.row.probes = 1, prober.seconds
            fault.row.seconds.append(time.monotonic() - began)
            fault.row.remark(prober.refused())
            if max(prober.seconds) > MAX_PROBE_SECONDS:
                fault.row.remark(f"the prober waited for more than {MAX_PROBE_SECONDS:.0f} s")
        yield fault.row


@contextmanager
def _locked_row(site: Site) -> Iterator[None]:
    """Lock a session that clients append to."""
    ending = threading.Event()
    body = {"user_id": LOCKED, "messages": [{"role": "user", "content": "This waits for the lock."}]}

    def keep_appending() -> None:
        while not ending.wait(0.1):
            site.status("POST", f"/api/v1/sessions/{LOCKED}/messages", body)

    clients = [threading.Thread(target=keep_appending, daemon=True) for _ in range(WAITING)]
    with site.connect() as connection, connection.transaction():
        connection.execute("SELECT FROM sessions_app_session WHERE session_id = %s FOR UPDATE", [LOCKED])
        for client in clients:
            client.start()
        yield
        ending.set()
    for client in clients:
        client.join(30)


@contextmanager
def _slow_bodies(site: Site) -> Iterator[None]:
    """Start requests and never complete them: half of them without a key at the login, half with one."""
    with _sockets(site) as sockets:
        for number, one in enumerate(sockets):
            path, header = (
                (f"/api/v1/sessions/{PERSON}/messages", f"Authorization: Bearer {site.key}")
                if number % 2
                else ("/admin/login/", "Cookie: csrftoken=drill")
            )
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\nContent-Length: 1000\r\n\r\n" + "{"
            one.sendall(head.encode())
        yield


@contextmanager
def _slow_readers(site: Site) -> Iterator[None]:
    """Request the most expensive page, half of the time without a key, and read nothing."""
    with _sockets(site) as sockets:
        for number, one in enumerate(sockets):
            key = f"Authorization: Bearer {site.key}\r\n" if number % 2 else ""
            one.sendall(f"GET /api/v1/schema HTTP/1.1\r\nHost: localhost\r\n{key}\r\n".encode() * 4)
        yield


@contextmanager
def _sockets(site: Site) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_connected(site)) for _ in range(SOCKETS)]


def _connected(site: Site) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(10)
    one.connect(("127.0.0.1", site.port))
    return one
