"""The context of each fault: a site to damage, clients at work, and a comparison of the results."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from drill.database import temporary_database
from drill.ledger import Ledger
from drill.load import Load
from drill.provider import Provider, no_failure
from drill.recovery import now, settle, work_lost_or_doubled
from drill.report import Row
from drill.site import Site, SiteNotReady
from drill.watch import Watch

Say = Callable[[str], object]


@dataclass
class Fault:
    """A fault in progress.

    Args:
        row: The result.
        ledger: The turns that were acknowledged during the fault.
    """

    row: Row
    ledger: Ledger = field(default_factory=Ledger)


@dataclass
class Course:
    """A drill. Its site starts when a fault first needs it, and runs until the block ends.

    Args:
        say: Prints a progress message.
        kills: The number of kills of each kind of process.
        outage: The seconds of the models' outage.
        database_url: A server where a database may be created. Blank for the embedded one.
        seed: The random seed, which decides which processes are killed, and when.
    """

    say: Say
    kills: int
    outage: float
    database_url: str = ""
    seed: int = 25
    provider: Provider = field(default_factory=Provider)
    _site: Site | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 (no secret)

    def __enter__(self) -> Self:
        self.provider.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()
        self.provider.__exit__()

    @property
    def site(self) -> Site:
        """The site. All faults use the same one, until a fault leaves it broken."""
        if self._site is None:
            self.say("Starting an installation to damage …")
            database = self._stack.enter_context(temporary_database(self.database_url))
            self._site = self._stack.enter_context(Site(self.provider, database))
        return self._site

    @contextmanager
    def another_site(self, before: Callable[[Site], object]) -> Iterator[None]:
        """Use another site with an embedded database while the block runs.

        Args:
            before: Called with the site before it starts.
        """
        mine = self._site, self._stack
        self._stack = ExitStack()
        try:
            self._site = self._stack.enter_context(Site(self.provider, before=before))
            yield
        finally:
            self._discard()
            self._site, self._stack = mine

    @contextmanager
    def fault(self, name: str, *, clients: int = 3) -> Iterator[Fault]:
        """Inject one fault while clients work, check who is notified, and compare the results.

        Args:
            name: The name of the fault in the report.
            clients: The number of clients that append, and of those that chat.
        """
        self.say(f"{name} …")
        fault = Fault(Row(name))
        with Watch(self.site) as watch, self.with_clients([fault], clients=clients):
            try:
                yield fault
            finally:
                with suppress(SiteNotReady):
                    fault.row.told = watch.told()
        self.say(f"  {fault.row.outcome()}")

    @contextmanager
    def with_clients(self, faults: "list[Fault]", *, clients: int = 3) -> "Iterator[FaultTracker]":
        """Run clients while faults are injected, and compare the results of each fault.

        If the site doesn't recover, the block ends. The current fault reports this, and the next one gets another site.

        Args:
            faults: Each has its own ledger. Results that can't be assigned go to the last one.
            clients: The number of clients that append, and of those that chat.
        """
        tracker, site, began = FaultTracker(faults[0]), self.site, now()
        try:
            with Load(site, lambda: tracker.current.ledger, faults[0].row.fault.replace(" ", "-"), clients):
                yield tracker
            for fault in faults:
                settle(site, fault.ledger, fault.row)
            work_lost_or_doubled(site, faults[-1].row, began)
        except SiteNotReady as error:
            tracker.current.row.never(str(error))
            self._discard()
        finally:
            self.provider.failure = no_failure

    def _discard(self) -> None:
        self._site = None
        self._stack.close()


@dataclass
class FaultTracker:
    """The faults that a drill injects while clients work.

    Args:
        current: The fault whose ledger records new acknowledgments.
    """

    current: Fault
