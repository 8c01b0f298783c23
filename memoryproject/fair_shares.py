"""Fair shares of a web process's threads, by API key and by application.

Each key, and each application, has a budget of thread-seconds that refills. While others that used less are calling,
calls over the budget wait, or get 429 if the wait would be too long. A caller that is alone is not limited by its
budget. Everything here runs on the event loop.
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

OTHERS_SECONDS = 2.0  # another caller counts as active for so long after its last call
REFILLED = 0.25  # share of a budget that comes back per second
PATIENCE = 5.0  # maximum seconds that a call waits for its budget
REFUSED_AFTER = 1.0  # seconds before a 429 is sent, which slows down clients that retry at once
MOST = 10_000  # budgets to keep, of the keys (and of the applications) that called most recently
FIRST_GUESS = 0.02  # thread-seconds that a caller's first call is expected to use
RECENT = 0.2  # weight of the last call in what the next one is expected to use


@dataclass(frozen=True)
class Caller:
    """The sender of a request.

    Args:
        key: identifies the API key; blank if the request has none.
        application: identifies its application; blank until the key is known to be valid.
    """

    key: str = ""
    application: str = ""


@dataclass
class _Account:
    """A caller's thread-seconds: how many are left, when that was computed, and how many a call is expected to use."""

    left: float
    at: float
    expected: float = FIRST_GUESS


class Budget:
    """The budgets of all callers of one kind.

    Args:
        kind: the kind of caller, as named in errors.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._accounts: OrderedDict[str, _Account] = OrderedDict()  # the most recent caller is last

    def reserve(self, name: str) -> tuple[float, float]:
        """Reserve the thread-seconds that a call is expected to use.

        Returns:
            The reserved thread-seconds, and the seconds that the call must wait.

        Raises:
            Refused: the wait would be too long. Nothing is reserved.
        """
        account = self._account(name)
        wait = max(0.0, -account.left / (settings.LIMITS.budget_seconds * REFILLED)) if self._is_bound(name) else 0.0
        if wait > PATIENCE:
            text = (
                f"This {self._kind} has used up its thread-seconds (LIMITS__BUDGET_SECONDS) while others call; "
                f"try again in {math.ceil(wait)} s."
            )
            raise Refused(429, "budget_used_up", text, retry_after=math.ceil(wait))
        account.left -= account.expected
        return account.expected, wait

    def use(self, name: str, seconds: float) -> None:
        """Charge thread-seconds used beyond the reservation, or return unused ones if negative."""
        account = self._account(name)
        account.left -= seconds
        if not self._is_bound(name):
            account.left = max(account.left, 0.0)  # no other caller had to wait, so there is no debt

    def expect(self, name: str, seconds: float) -> None:
        """Update the expected thread-seconds of the next call from those of a finished one."""
        account = self._account(name)
        account.expected += RECENT * (seconds - account.expected)

    def _account(self, name: str) -> _Account:
        now, most = time.monotonic(), settings.LIMITS.budget_seconds
        account = self._accounts.setdefault(name, _Account(most, now))
        self._accounts.move_to_end(name)
        account.left = min(most, account.left + (now - account.at) * most * REFILLED)
        account.at = now
        if len(self._accounts) > MOST:
            self._accounts.popitem(last=False)
        return account

    def _is_bound(self, name: str) -> bool:
        """Return whether another caller that used less has called recently."""
        left, oldest = self._accounts[name].left, time.monotonic() - OTHERS_SECONDS
        recent = takewhile(lambda account: account.at > oldest, reversed(self._accounts.values()))
        return any(account.left > left for account in recent)


class Spending:
    """Charges the thread-seconds of one request to its budgets.

    Args:
        paid: the reservations, each with its budget, the caller's name, and the thread-seconds.
    """

    def __init__(self, *paid: tuple[Budget, str, float]) -> None:
        self._accounts = [(budget, name) for budget, name, _ in paid]
        self._paid = [reserved for *_, reserved in paid]
        self._used = 0.0

    def add(self, seconds: float) -> None:
        """Add the seconds that a thread worked, and charge those beyond the reservation at once."""
        self._used += seconds
        self._settle(at_least=self._paid)

    def end(self) -> None:
        """Return unused thread-seconds."""
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
        """Admit a request as soon as its caller's budgets allow it.

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
        if not caller.application:  # a key not known to be valid; `strangers.py` limits those
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
    """Return the sender of the current request."""
    return _caller.get()


@asynccontextmanager
async def in_thread_of_caller() -> AsyncIterator[None]:
    """Charge the duration of the block to the caller's budgets."""
    began, spending = time.monotonic(), _spending.get()
    try:
        yield
    finally:
        if spending:
            spending.add(time.monotonic() - began)


FAIR_SHARES = FairShares()
