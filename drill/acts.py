"""What an application does once: corrects a fact, retracts items, asks probes, gets contexts.

Clients do so all the time. One that gets no answer asks again until it is answered, or refused because it was done
already. At the end each of these must have been done once: whole, and not twice.
"""

import http.client
import json
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, LiteralString, Self

from drill.ledger import Ledger, new_mark
from drill.load import AGAIN, PAUSE, append
from drill.recovery import CAUGHT_UP_SECONDS, WELL_SECONDS
from drill.report import Row
from drill.site import NotWell, Site, wait_for

ROUNDS = 24  # of turns, of which a person's streams are formed
ITEMS = 2  # that are corrected or retracted at once
PROBES = 4
KEPT_SECONDS = 5.0  # in which contexts are kept by whoever lives
ROOM = 10_000  # for facts in a stream, so that none goes for being old
DONE_ALREADY = {"cannot_correct", "cannot_retract"}  # codes of refusals, for one who asks again

WRONG = "SELECT count(*) FROM moments_app_memoryatom WHERE state = 'active' AND content = ANY(%s)"
THERE = "SELECT count(*) FROM moments_app_memoryatom WHERE atom_id::text = ANY(%s)"
MADE = """
SELECT count(*) FROM moments_app_correction correction
JOIN moments_app_memoryatom fact ON fact.id = correction.fact_id WHERE fact.atom_id::text = ANY(%s)
"""
STANDING = MADE + " AND undone_at IS NULL"
RETRACTED = "SELECT count(*) FROM moments_app_retraction WHERE item_ids::text[] && %s::text[]"
STILL_RETRACTED = RETRACTED + " AND undone_at IS NULL"
IN_TEXTS = "SELECT count(*) FROM moments_app_memorystream WHERE consolidated_content LIKE %s"
NOT_ENDED = "SELECT count(*) FROM moments_app_job WHERE job_id::text = %s AND status IN ('queued', 'processing')"
COMPLETED = "SELECT count(*) FROM moments_app_job WHERE job_id::text = %s AND status = 'completed'"
ASKED = "SELECT count(*), count(DISTINCT probe_id) FROM moments_app_proberesult WHERE run_id::text = %s"
KEPT = "SELECT count(*) FROM moments_app_contextreceipt WHERE context_id::text = ANY(%s)"
UNREADABLE = """
from moments_app.context.kept import KeptContext
from moments_app.models import ContextReceipt
rows = ContextReceipt.objects.only("sealed", "context_id")
print("unreadable", sum(KeptContext.from_sealed(row.sealed, row.context_id) is None for row in rows))
"""


@dataclass
class Account:
    """How often something was done, and how often not, or more than once."""

    done: int = 0
    lost: int = 0
    doubled: int = 0
    remarks: list[str] = field(default_factory=list)

    def expect(self, found: int, wanted: int) -> None:
        """Compare a number with what it should be."""
        self.lost += max(wanted - found, 0)
        self.doubled += max(found - wanted, 0)


class Act(ABC):
    """A client that does one thing once, then the next.

    Args:
        site: that it uses.
        ending: set when nothing is to be begun any more, and nothing repeated.
    """

    name: str

    def __init__(self, site: Site, ending: threading.Event) -> None:
        self.site, self._ending = site, ending
        self.person = f"drill-{type(self).__name__.lower()}"
        self.refused: Counter[str] = Counter()  # what nobody should be refused

    def prepare(self) -> None:
        """Have a person whose streams are there."""
        for _ in range(ROUNDS):
            append(self.site, Ledger(), self.person)

    @abstractmethod
    def once(self) -> None:
        """Do it once."""

    @abstractmethod
    def account(self, site: Site) -> Account:
        """Return how often it was done, as a site has it: this one, or one that was restored."""

    def insist(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Ask until it is answered, or refused because it is done; None when the drill ends before."""
        while not self._ending.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError):
                status, data = self.site.request(method, f"/api/v1/{path}", body | {"user_id": self.person})
                answer: dict[str, Any] = json.loads(data)
                codes = {error["code"] for error in answer.get("errors", ())}
                if status < 300 or codes & DONE_ALREADY:
                    return answer
                if status < 500:
                    self.refused[f"{method} {path.split('/')[0]} {status} {', '.join(sorted(codes))}"] += 1
            self._ending.wait(AGAIN)
        return None

    def work(self) -> None:
        """Do it again and again."""
        while not self._ending.wait(PAUSE):
            with suppress(NotWell):  # a database that stays away is told of by the kill
                self.once()


class _OfItems(Act):
    """Something that is done to items of a person's stream, and undone every second time."""

    kind: str  # of the items
    path: str  # of what is made by it
    which: LiteralString  # finds that by the ids of the items

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self._stream = ""
        self.done: list[tuple[str, list[str]]] = []  # a mark, and the ids of its items
        self.undone: list[tuple[str, list[str]]] = []

    def prepare(self) -> None:
        """Have a person with a stream that takes many facts."""
        super().prepare()
        wait_for("a person's stream", self._has_stream, WELL_SECONDS, pause=0.5)
        self.insist("PATCH", f"streams/{self._stream}", {"fact_buffer_max": ROOM})

    def _has_stream(self) -> bool:
        path = f"/api/v1/streams?user_id={self.person}&stream_type=user"
        found = json.loads(self.site.request("GET", path)[1])["streams"]
        self._stream = found[0]["stream_id"] if found else ""
        return bool(found)

    def _write(self, mark: str) -> list[str]:
        ids = []
        for number, text in enumerate(said_of(mark)):
            item = {"atom_type": self.kind, "content": text, "external_id": f"{mark}-{number}"}
            written = self.insist("POST", f"streams/{self._stream}/atoms", item)
            if written is None:
                return []
            ids.append(written["atom_id"])
        return ids

    def once(self) -> None:
        """Write items, do it to them, and undo it every second time."""
        mark = new_mark()
        ids = self._write(mark)
        if not ids or self.do(mark, ids) is None:
            return
        self.done.append((mark, ids))
        made = self.site.rows(self.which, ids)
        if made and len(self.done) > len(self.undone) + 1:
            self._undo(str(made[0][0]))

    def _undo(self, made: str) -> None:
        entry = self.done.pop()
        if self.insist("POST", f"{self.path}/{made}/undo", {}) is not None:
            self.undone.append(entry)

    @abstractmethod
    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Do it to these items; None when the drill ends before."""


def said_of(mark: str, place: str = "Oslo") -> list[str]:
    """Return what items say."""
    said = f"The guest {mark} lives in {place} with the whole family"
    return [f"{said}.", f"{said} and likes it there."][:ITEMS]


class Correct(_OfItems):
    """Corrects a fact, and what says the same with it."""

    name, kind, path = "facts corrected", "fact", "corrections"
    which = """
SELECT correction_id FROM moments_app_correction correction JOIN moments_app_memoryatom fact
ON fact.id = correction.fact_id WHERE fact.atom_id::text = ANY(%s) ORDER BY correction.id DESC LIMIT 1
"""

    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Correct the first of them, and with it the other."""
        return self.insist("PATCH", f"facts/{ids[0]}", {"content": said_of(mark, "Bergen")[0]})

    def account(self, site: Site) -> Account:
        """Each was corrected once, with all that says the same, or is as it was before."""
        found = Account(len(self.done) + len(self.undone))
        for entries, standing in ((self.done, 1), (self.undone, 0)):
            for mark, ids in entries:
                found.expect(site.number(MADE, ids), 1)
                found.expect(site.number(STANDING, ids), standing)
                found.expect(site.number(WRONG, said_of(mark)), 0 if standing else ITEMS)
                found.expect(site.number(WRONG, said_of(mark, "Bergen")), ITEMS if standing else 0)
        found.remarks.append(f"{len(self.undone)} of them undone afterwards")
        return found


class Retract(_OfItems):
    """Retracts items that were written directly, and the texts that were made of them."""

    name, kind, path = "items retracted", "observation", "retractions"
    which = "SELECT retraction_id FROM moments_app_retraction WHERE item_ids::text[] && %s::text[]"

    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Retract all of them."""
        return self.insist("POST", "retractions", {"atom_ids": list(ids), "reason": mark})

    def account(self, site: Site) -> Account:
        """Each was retracted once and is in no text, or is back."""
        found = Account(len(self.done) + len(self.undone))
        for entries, standing in ((self.done, 1), (self.undone, 0)):
            for mark, ids in entries:
                found.expect(site.number(RETRACTED, ids), 1)
                found.expect(site.number(STILL_RETRACTED, ids), standing)
                found.expect(site.number(THERE, ids), 0 if standing else ITEMS)
                if standing:
                    found.expect(site.number(IN_TEXTS, f"%{mark}%"), 0)
        found.remarks.append(f"{len(self.undone)} of them undone afterwards")
        return found


class AskProbes(Act):
    """Runs a person's probes."""

    name = "probe runs"

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self.runs: list[str] = []

    def prepare(self) -> None:
        """Have a person with probes."""
        super().prepare()
        for number in range(PROBES):
            self.insist("POST", "probes", {"question": f"What was said in round {number}?", "expected": "A drill."})

    def once(self) -> None:
        """Ask them, and wait until all are."""
        asked = self.insist("POST", "probes/run", {})
        if asked is None:
            return
        self.runs.append(asked["job_id"])
        while not self._has_ended(self.site, self.runs[-1]) and not self._ending.wait(AGAIN):
            pass

    def account(self, site: Site) -> Account:
        """Each run is completed, and has each probe once."""
        runs = list(dict.fromkeys(self.runs))
        found = Account(len(runs))
        for run in runs:
            wait_for("a run of probes", partial(self._has_ended, site, run), CAUGHT_UP_SECONDS)
            found.expect(site.number(COMPLETED, run), 1)
            [[results, distinct]] = site.rows(ASKED, run)
            found.expect(distinct, PROBES)
            found.doubled += results - distinct
        return found

    def _has_ended(self, site: Site, run: str) -> bool:
        return not site.number(NOT_ENDED, run)


class Ask(Act):
    """Gets contexts, and appends with their ids."""

    name = "contexts stored"

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self.contexts: list[str] = []

    def once(self) -> None:
        """Get one, and append what it was asked for with its id, which is taken whether it is kept by then or not."""
        got = self.insist("POST", "memory/context", {"session_id": self.person, "query": "What is done?"})
        if got is None:
            return
        self.contexts.append(got["context_id"])
        said = {"role": "assistant", "content": "That was asked in a drill.", "external_id": got["context_id"]}
        body = {"messages": [said], "context_id": got["context_id"]}
        self.insist("POST", f"sessions/{self.person}/messages", body)

    def account(self, site: Site) -> Account:
        """Each that is kept can be read. What a killed process had not kept yet, within a second, is told."""
        with suppress(NotWell):
            wait_for("contexts to be kept", lambda: not self._missing(site), KEPT_SECONDS)
        missing = self._missing(site)
        printed = site.manage("shell", "-v", "0", "-c", UNREADABLE).split()
        told = f"{missing} not stored, from the last second before a kill"
        return Account(len(self.contexts), lost=int(printed[-1]), remarks=[told])

    def _missing(self, site: Site) -> int:
        return len(self.contexts) - site.number(KEPT, self.contexts)


ACTS: Sequence[type[Act]] = (Correct, Retract, AskProbes, Ask)


class Acting:
    """Clients of each act, as long as the block runs.

    Args:
        site: that they use.

    Raises:
        NotWell: the site is not in a state to begin with.
    """

    def __init__(self, site: Site) -> None:
        self._ending = threading.Event()
        self.acts = [act(site, self._ending) for act in ACTS]
        self._threads = [threading.Thread(target=act.work, daemon=True) for act in self.acts]

    def __enter__(self) -> Self:
        for act in self.acts:
            act.prepare()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60 if kind is None else 1)

    def rows(self, site: Site, times: int, where: str = "") -> list[Row]:
        """Return a row for each, as a site has them.

        Args:
            site: that is asked; these, or a restored one.
            times: how often a process was killed meanwhile.
            where: what is told of the site.
        """
        return [_row(act, site, times, where) for act in self.acts]


def _row(act: Act, site: Site, times: int, where: str) -> Row:
    account = act.account(site)
    told = [f"{account.done} done", *account.remarks]
    row = Row(f"{act.name}{where}", times, lost=account.lost, doubled=account.doubled, remarks=told)
    if refused := ", ".join(f"{what} ({number} times)" for what, number in act.refused.items()):
        row.never(f"refused: {refused}")
    elif not account.done:
        row.never("nothing came to be done")
    return row
