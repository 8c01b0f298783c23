"""What every fault is given: a site to hurt, clients at work meanwhile, and accounts of what came of it."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

from drill.database import beside
from drill.ledger import Ledger
from drill.load import Load
from drill.provider import Provider, well
from drill.recovery import now, settle, work_lost_or_doubled
from drill.report import Row
from drill.site import NotWell, Site
from drill.watch import Watch

Say = Callable[[str], object]


@dataclass
class Fault:
    """A fault under way.

    Args:
        row: what came of it.
        ledger: of what clients were told meanwhile.
    """

    row: Row
    ledger: Ledger = field(default_factory=Ledger)


@dataclass
class Course:
    """A drill. Its site is started when a fault first asks for it, and is there while the block runs.

    Args:
        say: prints a line of progress.
        kills: of each kind of process.
        outage: seconds that the models are away.
        database_url: of a server on which a database may be made; blank for the embedded one.
        seed: of chance: another one has other processes killed, at other instants.
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
        """The site: one for all faults, and another one where a fault left it broken."""
        if self._site is None:
            self.say("Starting an installation to hurt …")
            database = self._stack.enter_context(beside(self.database_url))
            self._site = self._stack.enter_context(Site(self.provider, database))
        return self._site

    @contextmanager
    def another_site(self, before: Callable[[Site], object]) -> Iterator[None]:
        """Hurt another site while the block runs, with an embedded database.

        Args:
            before: is called with it before it is started.
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
        """Do one fault beside clients at work, see who is told, and settle the accounts.

        Args:
            name: of the fault, for people.
            clients: how many append, and how many chat.
        """
        self.say(f"{name} …")
        fault = Fault(Row(name))
        with Watch(self.site) as watch, self.attended([fault], clients=clients):
            try:
                yield fault
            finally:
                with suppress(NotWell):
                    fault.row.told = watch.told()
        self.say(f"  {fault.row.outcome()}")

    @contextmanager
    def attended(self, faults: "list[Fault]", *, clients: int = 3) -> "Iterator[Attended]":
        """Have clients at work while faults are done, and settle the accounts of each.

        A site that never recovers ends the block: the fault under way says so, and the next one gets another site.

        Args:
            faults: each has a ledger of its own; to the last goes what can't be told apart.
            clients: how many append, and how many chat.
        """
        attended, site, began = Attended(faults[0]), self.site, now()
        try:
            with Load(site, lambda: attended.current.ledger, faults[0].row.fault.replace(" ", "-"), clients):
                yield attended
            for fault in faults:
                settle(site, fault.ledger, fault.row)
            work_lost_or_doubled(site, faults[-1].row, began)
        except NotWell as error:
            attended.current.row.never(str(error))
            self._discard()
        finally:
            self.provider.failure = well

    def _discard(self) -> None:
        self._site = None
        self._stack.close()


@dataclass
class Attended:
    """Faults while clients are at work.

    Args:
        current: under way: what clients are told now goes into its ledger.
    """

    current: Fault
