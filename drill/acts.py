"""Clients whose actions must take effect exactly once: corrections, retractions, probes, contexts.

The clients act all the time. A client without a response retries until it gets one, or until the action is rejected
because it was already done. At the end, each action must have been done once and completely.
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
from drill.load import PAUSE, RETRY_SECONDS, append
from drill.recovery import CAUGHT_UP_SECONDS, READY_SECONDS
from drill.report import Row
from drill.site import Site, SiteNotReady, wait_for

ROUNDS = 24  # of turns, to form a person's streams
ITEMS = 2  # to correct or retract at once
PROBES = 4
KEPT_SECONDS = 5.0  # maximum time to store contexts
MAX_FACTS = 10_000  # for facts in a stream, so none is dropped because of its age
DONE_ALREADY = {"cannot_correct", "cannot_retract"}  # error codes that a retry may get

COUNT_ACTIVE = "SELECT count(*) FROM moments_app_memoryatom WHERE state = 'active' AND content = ANY(%s)"
COUNT_ITEMS = "SELECT count(*) FROM moments_app_memoryatom WHERE atom_id::text = ANY(%s)"
COUNT_CORRECTIONS = """
SELECT count(*) FROM moments_app_correction correction
JOIN moments_app_memoryatom fact ON fact.id = correction.fact_id WHERE fact.atom_id::text = ANY(%s)
"""
COUNT_NOT_UNDONE = COUNT_CORRECTIONS + " AND undone_at IS NULL"
COUNT_RETRACTIONS = "SELECT count(*) FROM moments_app_retraction WHERE item_ids::text[] && %s::text[]"
COUNT_RETRACTIONS_NOT_UNDONE = COUNT_RETRACTIONS + " AND undone_at IS NULL"
COUNT_STREAMS_WITH_TEXT = "SELECT count(*) FROM moments_app_memorystream WHERE consolidated_content LIKE %s"
COUNT_OPEN_JOBS = "SELECT count(*) FROM moments_app_job WHERE job_id::text = %s AND status IN ('queued', 'processing')"
COUNT_COMPLETED_JOBS = "SELECT count(*) FROM moments_app_job WHERE job_id::text = %s AND status = 'completed'"
COUNT_PROBE_RESULTS = "SELECT count(*), count(DISTINCT probe_id) FROM moments_app_proberesult WHERE run_id::text = %s"
COUNT_RECEIPTS = "SELECT count(*) FROM moments_app_contextreceipt WHERE context_id::text = ANY(%s)"
PRINT_UNREADABLE_RECEIPTS = """
from moments_app.context.receipts import StoredContext
from moments_app.models import ContextReceipt
rows = ContextReceipt.objects.only("sealed", "context_id")
print("unreadable", sum(StoredContext.from_sealed(row.sealed, row.context_id) is None for row in rows))
"""


@dataclass
class Account:
    """How often actions were done, not done, or done more than once."""

    done: int = 0
    lost: int = 0
    doubled: int = 0
    remarks: list[str] = field(default_factory=list)

    def expect(self, found: int, wanted: int) -> None:
        """Compare a number with the expected one."""
        self.lost += max(wanted - found, 0)
        self.doubled += max(found - wanted, 0)


class Act(ABC):
    """A client that repeats one kind of action.

    Args:
        site: The site.
        ending: Set when the client must start no action, and make no retry.
    """

    name: str

    def __init__(self, site: Site, ending: threading.Event) -> None:
        self.site, self._ending = site, ending
        self.person = f"drill-{type(self).__name__.lower()}"
        self.refused: Counter[str] = Counter()  # unexpected errors

    def prepare(self) -> None:
        """Create a person with streams."""
        for _ in range(ROUNDS):
            append(self.site, Ledger(), self.person)

    @abstractmethod
    def once(self) -> None:
        """Do one action."""

    @abstractmethod
    def account(self, site: Site) -> Account:
        """Return how often the actions were done according to a site, either this one or a restored one."""

    def insist(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Retry until there is a response, or the action was already done. Return None if the drill ends before."""
        while not self._ending.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError):
                status, data = self.site.request(method, f"/api/v1/{path}", body | {"user_id": self.person})
                answer: dict[str, Any] = json.loads(data)
                codes = {error["code"] for error in answer.get("errors", ())}
                if status < 300 or codes & DONE_ALREADY:
                    return answer
                if status < 500:
                    self.refused[f"{method} {path.split('/')[0]} {status} {', '.join(sorted(codes))}"] += 1
            self._ending.wait(RETRY_SECONDS)
        return None

    def work(self) -> None:
        """Repeat the action."""
        while not self._ending.wait(PAUSE):
            with suppress(SiteNotReady):  # the kill reports a database that stays down
                self.once()


class _ItemAct(Act):
    """An action on items of a person's stream. Every second action is undone."""

    kind: str  # the kind of the items
    path: str  # the path of the action's records
    find_records: LiteralString  # finds the records by the ids of the items

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self._stream = ""
        self.done: list[tuple[str, list[str]]] = []  # a mark, and the ids of its items
        self.undone: list[tuple[str, list[str]]] = []

    def prepare(self) -> None:
        """Create a person with a stream that has room for many facts."""
        super().prepare()
        wait_for("a person's stream", self._has_stream, READY_SECONDS, pause=0.5)
        self.insist("PATCH", f"streams/{self._stream}", {"fact_buffer_max": MAX_FACTS})

    def _has_stream(self) -> bool:
        path = f"/api/v1/streams?user_id={self.person}&stream_type=user"
        found = json.loads(self.site.request("GET", path)[1])["streams"]
        self._stream = found[0]["stream_id"] if found else ""
        return bool(found)

    def _write(self, mark: str) -> list[str]:
        ids = []
        for number, text in enumerate(item_texts(mark)):
            item = {"atom_type": self.kind, "content": text, "external_id": f"{mark}-{number}"}
            written = self.insist("POST", f"streams/{self._stream}/atoms", item)
            if written is None:
                return []
            ids.append(written["atom_id"])
        return ids

    def once(self) -> None:
        """Write items and do the action. Undo every second action."""
        mark = new_mark()
        ids = self._write(mark)
        if not ids or self.do(mark, ids) is None:
            return
        self.done.append((mark, ids))
        records = self.site.rows(self.find_records, ids)
        if records and len(self.done) > len(self.undone) + 1:
            self._undo(str(records[0][0]))

    def _undo(self, record_id: str) -> None:
        entry = self.done.pop()
        if self.insist("POST", f"{self.path}/{record_id}/undo", {}) is not None:
            self.undone.append(entry)

    @abstractmethod
    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Do the action on these items. Return None if the drill ends before."""


def item_texts(mark: str, place: str = "Oslo") -> list[str]:
    """Return the texts of items."""
    said = f"The guest {mark} lives in {place} with the whole family"
    return [f"{said}.", f"{said} and likes it there."][:ITEMS]


class Correct(_ItemAct):
    """Corrects a fact, together with a second one that has the same meaning."""

    name, kind, path = "facts corrected", "fact", "corrections"
    find_records = """
SELECT correction_id FROM moments_app_correction correction JOIN moments_app_memoryatom fact
ON fact.id = correction.fact_id WHERE fact.atom_id::text = ANY(%s) ORDER BY correction.id DESC LIMIT 1
"""

    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Correct the first fact, and with it the second one."""
        return self.insist("PATCH", f"facts/{ids[0]}", {"content": item_texts(mark, "Bergen")[0]})

    def account(self, site: Site) -> Account:
        """Check that each fact was corrected once with its duplicate, or is unchanged after an undo."""
        found = Account(len(self.done) + len(self.undone))
        for entries, standing in ((self.done, 1), (self.undone, 0)):
            for mark, ids in entries:
                found.expect(site.number(COUNT_CORRECTIONS, ids), 1)
                found.expect(site.number(COUNT_NOT_UNDONE, ids), standing)
                found.expect(site.number(COUNT_ACTIVE, item_texts(mark)), 0 if standing else ITEMS)
                found.expect(site.number(COUNT_ACTIVE, item_texts(mark, "Bergen")), ITEMS if standing else 0)
        found.remarks.append(f"{len(self.undone)} of them undone afterwards")
        return found


class Retract(_ItemAct):
    """Retracts items that were written directly, and the texts derived from them."""

    name, kind, path = "items retracted", "observation", "retractions"
    find_records = "SELECT retraction_id FROM moments_app_retraction WHERE item_ids::text[] && %s::text[]"

    def do(self, mark: str, ids: Sequence[str]) -> Any:
        """Retract all of them."""
        return self.insist("POST", "retractions", {"atom_ids": list(ids), "reason": mark})

    def account(self, site: Site) -> Account:
        """Check that each item was retracted once and is in no text, or is restored."""
        found = Account(len(self.done) + len(self.undone))
        for entries, standing in ((self.done, 1), (self.undone, 0)):
            for mark, ids in entries:
                found.expect(site.number(COUNT_RETRACTIONS, ids), 1)
                found.expect(site.number(COUNT_RETRACTIONS_NOT_UNDONE, ids), standing)
                found.expect(site.number(COUNT_ITEMS, ids), 0 if standing else ITEMS)
                if standing:
                    found.expect(site.number(COUNT_STREAMS_WITH_TEXT, f"%{mark}%"), 0)
        found.remarks.append(f"{len(self.undone)} of them undone afterwards")
        return found


class AskProbes(Act):
    """Runs a person's probes."""

    name = "probe runs"

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self.runs: list[str] = []

    def prepare(self) -> None:
        """Create a person with probes."""
        super().prepare()
        for number in range(PROBES):
            self.insist("POST", "probes", {"question": f"What was said in round {number}?", "expected": "A drill."})

    def once(self) -> None:
        """Run the probes, and wait until the run is complete."""
        asked = self.insist("POST", "probes/run", {})
        if asked is None:
            return
        self.runs.append(asked["job_id"])
        while not self._has_ended(self.site, self.runs[-1]) and not self._ending.wait(RETRY_SECONDS):
            pass

    def account(self, site: Site) -> Account:
        """Check that each run is complete, and has each probe once."""
        runs = list(dict.fromkeys(self.runs))
        found = Account(len(runs))
        for run in runs:
            wait_for("a run of probes", partial(self._has_ended, site, run), CAUGHT_UP_SECONDS)
            found.expect(site.number(COUNT_COMPLETED_JOBS, run), 1)
            [[results, distinct]] = site.rows(COUNT_PROBE_RESULTS, run)
            found.expect(distinct, PROBES)
            found.doubled += results - distinct
        return found

    def _has_ended(self, site: Site, run: str) -> bool:
        return not site.number(COUNT_OPEN_JOBS, run)


class Ask(Act):
    """Gets contexts, and appends with their ids."""

    name = "contexts stored"

    def __init__(self, site: Site, ending: threading.Event) -> None:
        super().__init__(site, ending)
        self.contexts: list[str] = []

    def once(self) -> None:
        """Get a context, and append a message with its id, which must be accepted even if the context isn't stored."""
        got = self.insist("POST", "memory/context", {"session_id": self.person, "query": "What is done?"})
        if got is None:
            return
        self.contexts.append(got["context_id"])
        said = {"role": "assistant", "content": "That was asked in a drill.", "external_id": got["context_id"]}
        body = {"messages": [said], "context_id": got["context_id"]}
        self.insist("POST", f"sessions/{self.person}/messages", body)

    def account(self, site: Site) -> Account:
        """Check that each stored context can be read. Report those that a killed process had not stored yet."""
        with suppress(SiteNotReady):
            wait_for("contexts to be stored", lambda: not self._missing(site), KEPT_SECONDS)
        missing = self._missing(site)
        printed = site.manage("shell", "-v", "0", "-c", PRINT_UNREADABLE_RECEIPTS).split()
        remark = f"{missing} not stored, from the last second before a kill"
        return Account(len(self.contexts), lost=int(printed[-1]), remarks=[remark])

    def _missing(self, site: Site) -> int:
        return len(self.contexts) - site.number(COUNT_RECEIPTS, self.contexts)


ACTS: Sequence[type[Act]] = (Correct, Retract, AskProbes, Ask)


class ActingClients:
    """Runs clients for each action while the block runs.

    Args:
        site: The site.

    Raises:
        SiteNotReady: The site isn't ready.
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
        """Return a row for each action, as a site has stored them.

        Args:
            site: This site, or a restored one.
            times: How often a process was killed.
            where: A note about the site.
        """
        return [_row(act, site, times, where) for act in self.acts]


def _row(act: Act, site: Site, times: int, where: str) -> Row:
    account = act.account(site)
    remarks = [f"{account.done} done", *account.remarks]
    row = Row(f"{act.name}{where}", times, lost=account.lost, doubled=account.doubled, remarks=remarks)
    if refused := ", ".join(f"{what} ({number} times)" for what, number in act.refused.items()):
        row.never(f"refused: {refused}")
    elif not account.done:
        row.never("no action was completed")
    return row
