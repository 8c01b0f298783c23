"""Fair shares of a web process's threads, by API key and by application.

Each key and each application has a budget of thread-seconds, which is refilled continuously. While callers that used
less are active, a caller may use only one thread at a time. Its calls over the budget must wait, or get 429 if the wait
would be too long. A caller without active competitors is not limited. Everything here runs on the event loop.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import takewhile
from weakref import WeakValueDictionary

from django.conf import settings

ACTIVE_SECONDS = 2.0  # how long another caller counts as active after its last call
REFILL_SHARE = 0.25  # share of a budget that is refilled per second
MAX_WAIT = 5.0  # maximum seconds that a call waits for its budget
REFUSED_AFTER = 1.0  # delay of a 429 in seconds, to slow down clients that retry immediately
MAX_ACCOUNTS = 10_000  # number of budgets to keep, for the most recent callers
FIRST_GUESS = 0.02  # expected thread-seconds of a caller's first call
LAST_CALL_WEIGHT = 0.2  # weight of the last call in the moving average of thread-seconds per call


class Refused(Exception):
    """The request is rejected before it reaches Django, MCP or the chat endpoint."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message)
        self.status, self.code, self._retry_after = status, code, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response. Closing the connection discards an unread body."""
        retry = {"Retry-After": str(self._retry_after)} if self.status in (429, 503) else {}
        return retry if self.status == 503 else {"Connection": "close"} | retry


@dataclass(frozen=True)
class Caller:
    """The sender of a request. A blank key means that the request has none.

    The application is blank until the key is verified.
    """

    key: str = ""
    application: str = ""

    @property
    def names(self) -> dict[str, str]:
        return {"key": self.key, "application": self.application}


@dataclass
class _Account:
    """A caller's thread-seconds: those left at the monotonic time `at`, and those expected for the next call."""

    balance: float
    updated_at: float
    expected: float = FIRST_GUESS


class Budget:
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._accounts: OrderedDict[str, _Account] = OrderedDict()  # the most recent caller is last

    def reserve(self, name: str) -> tuple[float, float]:
        """Reserve the expected thread-seconds of a call. Return them, and the seconds that the call must wait.

        Raises:
            Refused: The wait would be too long. Nothing is reserved.
        """
        account = self._account(name)
        wait = (
            max(0.0, -account.balance / (settings.LIMITS.budget_seconds * REFILL_SHARE))
            if self.must_yield(name)
            else 0.0
        )
        if wait > MAX_WAIT:
            text = (
                f"This {self._kind} used more than its share of server time (LIMITS__BUDGET_SECONDS) while others that "
                f"used less were active. Try again in {math.ceil(wait)} s."
            )
            raise Refused(429, "budget_used_up", text, retry_after=math.ceil(wait))
        account.balance -= account.expected
        return account.expected, wait

    def use(self, name: str, seconds: float) -> None:
        """Charge thread-seconds used beyond the reservation. A negative number is a refund."""
        account = self._account(name)
        account.balance -= seconds
        if not self.must_yield(name):
            account.balance = max(account.balance, 0.0)  # no other caller was delayed, so there is no debt

    def expect(self, name: str, seconds: float) -> None:
        """After a call, update how many thread-seconds the next call is expected to take."""
        account = self._account(name)
        account.expected += LAST_CALL_WEIGHT * (seconds - account.expected)

    def must_yield(self, name: str) -> bool:
        """Return whether another active caller has used less than this one."""
        account = self._accounts.get(name)
        if not account:
            return False
        oldest = time.monotonic() - ACTIVE_SECONDS
        recent = takewhile(lambda other: other.updated_at > oldest, reversed(self._accounts.values()))
        return any(other.balance > account.balance for other in recent)

    def _account(self, name: str) -> _Account:
        now, limit = time.monotonic(), settings.LIMITS.budget_seconds
        account = self._accounts.setdefault(name, _Account(limit, now))
        self._accounts.move_to_end(name)
        account.balance = min(limit, account.balance + (now - account.updated_at) * limit * REFILL_SHARE)
        account.updated_at = now
        if len(self._accounts) > MAX_ACCOUNTS:
            self._accounts.popitem(last=False)
        return account


class Spending:
    """Charges the thread-seconds of one request to its budgets.

    Args:
        paid: The reservations, each with its budget, the caller's name and the thread-seconds.
        has_used: Set as soon as a thread has worked for the request.
    """

    def __init__(self, *paid: tuple[Budget, str, float], has_used: asyncio.Event | None = None) -> None:
        self._has_used = has_used or asyncio.Event()
        self._accounts = [(budget, name) for budget, name, _ in paid]
        self._paid = [reserved for *_, reserved in paid]
        self._used = 0.0

    def add(self, seconds: float) -> None:
        """Add seconds of a thread's work. Charge those beyond the reservation immediately."""
        self._used += seconds
        self._has_used.set()
        self._settle(at_least=self._paid)

    def end(self) -> None:
        """Refund unused thread-seconds."""
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


UNKNOWN_CALLER = Caller()
_caller: ContextVar[Caller] = ContextVar("caller", default=UNKNOWN_CALLER)
_spending: ContextVar[Spending | None] = ContextVar("spending", default=None)


class FairShares:
    def __init__(self) -> None:
        self._budgets = {"key": Budget("key"), "application": Budget("application")}
        self._first: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    @asynccontextmanager
    async def admit(self, identify: Callable[[], Caller]) -> AsyncIterator[None]:
        """Admit a request as soon as its caller's budgets allow it, or raise `Refused`.

        Args:
            identify: Returns the sender. For a key that is not verified yet, it is called again after the key's first
                request.
        """
        caller, has_used = identify(), asyncio.Event()
        if caller.key and not caller.application:
            first = self._first.setdefault(caller.key, has_used)
            if first is not has_used:
                with suppress(TimeoutError):
                    await asyncio.wait_for(first.wait(), MAX_WAIT)
                caller = identify()
        try:
            spending = await self._reserved(caller, has_used)
            tokens = _caller.set(caller), _spending.set(spending)
            try:
                yield
            finally:
                _caller.reset(tokens[0])
                _spending.reset(tokens[1])
                spending.end()
        finally:
            has_used.set()

    def must_yield(self, kind: str, name: str) -> bool:
        """Return whether a caller of the same kind (`key` or `application`) that used less is active."""
        return self._budgets[kind].must_yield(name)

    async def _reserved(self, caller: Caller, has_used: asyncio.Event) -> Spending:
        if not caller.application:  # an unverified key; `anonymous_throttle.py` limits those
            return Spending(has_used=has_used)
        paid: list[tuple[Budget, str, float]] = []
        waits: list[float] = []
        try:
            for kind, name in caller.names.items():
                reserved, wait = self._budgets[kind].reserve(name)
                paid.append((self._budgets[kind], name, reserved))
                waits.append(wait)
            await asyncio.sleep(max(waits))
        except BaseException as error:
            Spending(*paid).end()
            if isinstance(error, Refused):
                await asyncio.sleep(REFUSED_AFTER)
            raise
        return Spending(*paid, has_used=has_used)


def caller() -> Caller:
    return _caller.get()


@asynccontextmanager
async def charge_caller() -> AsyncIterator[None]:
    began, spending = time.monotonic(), _spending.get()
    try:
        yield
    finally:
        if spending:
            spending.add(time.monotonic() - began)


FAIR_SHARES = FairShares()
