"""Fair shares of a web process's threads, by API key and by application.

A key, and an application, has a budget of thread-seconds that refills. While others call that used less, whatever
exceeds it waits, and is refused with 429 if that would take too long. Who calls alone may use every thread. Everything
here belongs to the event loop.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile

from django.conf import settings

from memoryproject.refused import Refused

OTHERS_SECONDS = 2.0  # since the last call of another: its calls count as going on
PATIENCE = 5.0  # seconds that a call waits for its budget
REFUSED_AFTER = 1.0  # seconds: clients that call again at once cost little
MOST = 10_000  # keys, and applications, that are kept; those that called last
FIRST_GUESS = 0.02  # thread-seconds of a call
RECENT = 0.2  # weight of the last call in what the next one is expected to use


@dataclass(frozen=True)
class Caller:
    """The sender of a request.

    Args:
        key: names the API key; blank without one.
        application: names its application; blank as long as the key is not known to be valid.
    """

    key: str = ""
    application: str = ""


@dataclass
class _Account:
    """A caller's thread-seconds: those left, when they were counted, and how many a call is expected to use."""

    left: float
    at: float
    expected: float = FIRST_GUESS


class Budget:
    """The thread-seconds of each caller of a kind.

    Args:
        kind: of the callers, as errors name it.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._accounts: OrderedDict[str, _Account] = OrderedDict()  # who called last is at the end

    def reserve(self, name: str) -> tuple[float, float]:
        """Reserve what a call is expected to use.

        Returns:
            The thread-seconds that are reserved, and the seconds that the call has to wait for them.

        Raises:
            Refused: the wait would be too long. Nothing is reserved.
        """
        account = self._account(name)
        wait = max(0.0, -account.left / settings.LIMITS.budget_rate) if self._is_bound(name) else 0.0
        if wait > PATIENCE:
            text = (
                f"This {self._kind} has used up its thread-seconds (LIMITS__BUDGET_SECONDS) while others call; "
                f"try again in {math.ceil(wait)} s."
            )
            raise Refused(429, "budget_used_up", text, retry_after=math.ceil(wait))
        account.left -= account.expected
        return account.expected, wait

    def use(self, name: str, seconds: float) -> None:
        """Take thread-seconds that a call used beyond what it reserved, or give back what it didn't use."""
        account = self._account(name)
        account.left -= seconds
        if not self._is_bound(name):
            account.left = max(account.left, 0.0)  # nobody waited for them

    def expect(self, name: str, seconds: float) -> None:
        """Note what a call used: the next one is expected to use about as much."""
        account = self._account(name)
        account.expected += RECENT * (seconds - account.expected)

    def _account(self, name: str) -> _Account:
        now, most = time.monotonic(), settings.LIMITS.budget_seconds
        account = self._accounts.setdefault(name, _Account(most, now))
        self._accounts.move_to_end(name)
        account.left = min(most, account.left + (now - account.at) * settings.LIMITS.budget_rate)
        account.at = now
        if len(self._accounts) > MOST:
            self._accounts.popitem(last=False)
        return account

    def _is_bound(self, name: str) -> bool:
        """Return whether another caller has called lately, and used less."""
        left, oldest = self._accounts[name].left, time.monotonic() - OTHERS_SECONDS
        recent = takewhile(lambda account: account.at > oldest, reversed(self._accounts.values()))
        return any(account.left > left for account in recent)


class Spending:
    """The thread-seconds that a request uses.

    Args:
        paid: from these accounts: the budget, the name in it, and the thread-seconds that were reserved.
    """

    def __init__(self, *paid: tuple[Budget, str, float]) -> None:
        self._accounts = [(budget, name) for budget, name, _ in paid]
        self._paid = [reserved for *_, reserved in paid]
        self._used = 0.0

    def add(self, seconds: float) -> None:
        """Note that a thread worked for so long. What was not reserved is taken at once."""
        self._used += seconds
        self._settle(at_least=self._paid)

    def end(self) -> None:
        """Give back what was reserved and not used."""
        self._settle(at_least=[0.0] * len(self._paid))
        if self._used:
            for budget, name in self._accounts:
                budget.expect(name, self._used)

    def _settle(self, *, at_least: list[float]) -> None:
        due = [max(self._used, least) for least in at_least]
        for (budget, name), was, now in zip(self._accounts, self._paid, due, strict=True):
            if was != now:
                budget.use(name, now - was)
        self._paid = due


NOBODY = Caller()
_caller: ContextVar[Caller] = ContextVar("caller", default=NOBODY)
_spending: ContextVar[Spending | None] = ContextVar("spending", default=None)


class FairShares:
    """The budgets of all keys and applications of this process."""

    def __init__(self) -> None:
        self._budgets = {"key": Budget("key"), "application": Budget("application")}

    @asynccontextmanager
    async def one(self, caller: Caller) -> AsyncIterator[None]:
        """Let a request in as soon as its caller's budgets allow it.

        Raises:
            Refused: a budget is used up.
        """
        spending = await self._reserved(caller)
        tokens = _caller.set(caller), _spending.set(spending)
        try:
            yield
        finally:
            _caller.reset(tokens[0])
            _spending.reset(tokens[1])
            spending.end()

    async def _reserved(self, caller: Caller) -> Spending:
        if not caller.application:  # whose rate is limited otherwise, if its key is not valid
            return Spending()
        names = {"key": caller.key, "application": caller.application}
        paid: list[tuple[Budget, str, float]] = []
        waits: list[float] = []
        try:
            for kind, name in names.items():
                reserved, wait = self._budgets[kind].reserve(name)
                paid.append((self._budgets[kind], name, reserved))
                waits.append(wait)
            await asyncio.sleep(max(waits))
        except BaseException as error:
            Spending(*paid).end()
            if isinstance(error, Refused):
                await asyncio.sleep(REFUSED_AFTER)
            raise
        return Spending(*paid)


def caller() -> Caller:
    """Return the sender of the request that is being served."""
    return _caller.get()


@asynccontextmanager
async def in_thread_of_caller() -> AsyncIterator[None]:
    """Count the seconds of the block as thread-seconds of the caller."""
    began, spending = time.monotonic(), _spending.get()
    try:
        yield
    finally:
        if spending:
            spending.add(time.monotonic() - began)


FAIR_SHARES = FairShares()
