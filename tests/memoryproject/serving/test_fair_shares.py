"""A key or an application never occupies all threads of a web process."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from django.db import connection
from pytest_django.fixtures import Settings

from memoryproject.serving import fair_shares
from memoryproject.serving.fair_shares import Caller, FairShares, Refused, charge_caller
from memoryproject.serving.request_limits import Threads
from sessions_app.database.transactions import Deadline, using_deadline
from sessions_app.models import ApiKey, Application, Session, UserProfile
from tests.support.http import status_of
from tests.support.locks import row_locked
from tests.support.processes import environment, web
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

ALICE, BOB = Caller("a", "1"), Caller("b", "2")
THREADS = 2
LOCK_SECONDS = 600


def get(url: str, key: str, user_id: str = "ada") -> urllib.request.Request:
    return urllib.request.Request(f"{url}/api/v1/moments?user_id={user_id}", headers={"Authorization": f"Bearer {key}"})


def append(url: str, key: str, user_id: str) -> urllib.request.Request:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps({"user_id": user_id, "messages": [{"role": "user", "content": "Hello."}]}).encode()
    return urllib.request.Request(f"{url}/api/v1/sessions/{user_id}/messages", body, headers)


@pytest.fixture
def keys() -> tuple[str, str]:
    """The keys of two applications. Each application has a person called ada."""
    noisy = Application.objects.create(name="noisy").pk
    UserProfile.objects.ensure("ada")
    UserProfile.objects.ensure("ada", noisy)
    return (
        ApiKey.objects.issue("noisy", application=noisy, scope="write")[1],
        ApiKey.objects.issue("quiet", scope="write")[1],
    )


@contextmanager
def held_sessions(number: int) -> Iterator[list[str]]:
    """Lock one session of each given person of the noisy application. The session has the person's name."""
    noisy = Application.objects.get(name="noisy").pk
    people = [UserProfile.objects.ensure(f"person-{place}", noisy) for place in range(number)]
    with ExitStack() as locks:
        for person in people:
            locks.enter_context(row_locked(Session.objects.create(user=person, session_id=person.user_id)))
        yield [person.user_id for person in people]


# --- threads ---


@pytest.mark.slow(seconds=20)
def test_row_43_a_flood_from_one_key_leaves_a_thread_for_another_application(keys: tuple[str, str]) -> None:
    noisy, quiet = keys
    long = {f"LIMITS__{name}_SECONDS": str(LOCK_SECONDS) for name in ("REQUEST", "LOCK", "STATEMENT")}
    with web(**environment(WEB_THREADS=str(THREADS), **long)) as url, held_sessions(3 * THREADS) as people:
        assert {status_of(get(url, key)) for key in keys} == {200}
        flood = [threading.Thread(target=status_of, args=[append(url, noisy, person)]) for person in people]
        for one in flood:
            one.start()
        wait_until(lambda: waiting_for_locks() == THREADS)
        assert {status_of(get(url, quiet)) for _ in range(10)} == {200}
        assert waiting_for_locks() == THREADS
    for one in flood:
        one.join(TIMEOUT)


def waiting_for_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])


def test_row_43_a_key_and_an_application_get_all_threads_but_one() -> None:
    async def taken(callers: list[Caller]) -> int:
        threads, held = Threads(4), asyncio.Event()
        free = threads._free._value

        async def take(caller: Caller) -> None:
            async with threads.occupy("", "", caller):
                await held.wait()

        tasks = [asyncio.create_task(take(caller)) for caller in callers]
        await asyncio.sleep(0.05)
        number = free - threads._free._value
        held.set()
        await asyncio.gather(*tasks)
        return number

    assert asyncio.run(taken([ALICE] * 9)) == 4
    assert asyncio.run(taken([Caller(f"key {number}", "1") for number in range(9)])) == 4
    assert asyncio.run(taken([*[ALICE] * 9, BOB])) == 5


@pytest.mark.slow
def test_row_43_a_caller_gets_one_thread_while_another_that_used_less_is_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def most(caller: Caller, other: Caller | None) -> int:
        shares, threads, held = FairShares(), Threads(4), Counter[str]()
        monkeypatch.setattr("memoryproject.serving.request_limits.FAIR_SHARES", shares)

        async def use_a_thread() -> None:
            async with shares.admit(lambda: caller), threads.occupy("", "", caller), charge_caller():
                held["now"] += 1
                held["most"] = max(held["most"], held["now"])
                await asyncio.sleep(0.02)
                held["now"] -= 1

        await use_a_thread()
        if other:
            async with shares.admit(lambda: other):
                pass
        await asyncio.gather(*(use_a_thread() for _ in range(6)))
        return held["most"]

    assert asyncio.run(most(ALICE, None)) == 4
    assert asyncio.run(most(ALICE, BOB)) == 1


@pytest.mark.slow
def test_row_43_the_wait_for_a_thread_ends_with_the_deadline() -> None:
    async def wait() -> None:
        threads = Threads(1)
        async with threads.occupy("", "", ALICE):
            with using_deadline(Deadline(0.1)):
                async with threads.occupy("", "", ALICE):
                    pass

    with pytest.raises(Refused) as refused:
        asyncio.run(wait())
    assert refused.value.status == 503


# --- the budget ---


@pytest.fixture
def budget(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a budget of a tenth of a thread-second, refilled by a tenth per second. Reject calls over it at once."""
    settings.LIMITS = settings.LIMITS.model_copy(update={"budget_seconds": 0.1})
    monkeypatch.setattr(fair_shares, "REFILL_SHARE", 1.0)
    monkeypatch.setattr(fair_shares, "MAX_WAIT", 0.0)
    monkeypatch.setattr(fair_shares, "REFUSED_AFTER", 0.0)


async def use(shares: FairShares, caller: Caller, seconds: float) -> None:
    """Make a call that uses a thread for that many seconds."""
    async with shares.admit(lambda: caller), charge_caller():
        await asyncio.sleep(seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "named"), [(BOB, "key"), (Caller("b", "1"), "key"), (Caller("a", "2"), "application")]
)
def test_row_43_a_caller_over_budget_gets_429_while_others_call_until_the_budget_is_refilled(
    budget: None, other: Caller, named: str
) -> None:
    async def flood() -> None:
        shares = FairShares()
        await use(shares, other, 0.0)
        await use(shares, ALICE, 0.3)
        with pytest.raises(Refused, match=rf"This {named} .* \(LIMITS__BUDGET_SECONDS\)") as refused:
            await use(shares, ALICE, 0.0)
        assert refused.value.status == 429
        assert 1 <= int(refused.value.headers["Retry-After"]) <= 3
        if named == "key":
            await use(shares, other, 0.0)  # no other caller is refused
        for kind, name in ALICE.names.items():
            shares._budgets[kind]._accounts[name].updated_at -= 3.0  # seconds later
        await use(shares, ALICE, 0.0)

    asyncio.run(flood())


@pytest.mark.slow
def test_row_43_requests_with_a_new_key_wait_for_a_first_thread_and_are_then_charged() -> None:
    async def flood() -> tuple[int, set[str]]:
        shares, known, began, is_over = FairShares(), Caller("new"), 0, asyncio.Event()

        async def call() -> None:
            nonlocal known, began
            async with shares.admit(lambda: known):
                began += 1
                async with charge_caller():
                    await asyncio.sleep(0.1)
                known = Caller("new", "1")
                await is_over.wait()

        tasks = [asyncio.create_task(call()) for _ in range(4)]
        await asyncio.sleep(0.05)
        began_with_the_first = began
        while began < len(tasks):
            await asyncio.sleep(0.01)
        is_over.set()
        await asyncio.gather(*tasks)
        return began_with_the_first, set(shares._budgets["application"]._accounts)

    assert asyncio.run(flood()) == (1, {"1"})


@pytest.mark.slow
def test_row_43_a_lone_caller_is_never_refused_and_accumulates_no_debt(budget: None) -> None:
    async def work() -> None:
        shares = FairShares()
        for _ in range(4):
            await use(shares, ALICE, 0.1)
        accounts = [account for budget in shares._budgets.values() for account in budget._accounts.values()]
        assert len(accounts) == 2 and all(account.balance >= 0 for account in accounts)

    asyncio.run(work())


@pytest.mark.slow
def test_row_43_the_caller_with_the_least_usage_is_not_refused_despite_a_used_up_budget(budget: None) -> None:
    async def work() -> None:
        shares = FairShares()
        await use(shares, BOB, 0.0)
        await asyncio.gather(*(use(shares, ALICE, 0.4) for _ in range(3)), use(shares, BOB, 0.4))
        await use(shares, BOB, 0.0)
        with pytest.raises(Refused):
            await use(shares, ALICE, 0.0)

    asyncio.run(work())


@pytest.mark.slow
def test_row_43_a_call_over_the_budget_waits_before_it_is_refused(
    budget: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_shares, "MAX_WAIT", 5.0)

    async def wait() -> float:
        shares = FairShares()
        await use(shares, BOB, 0.0)
        await use(shares, ALICE, 0.15)
        began = time.monotonic()
        await use(shares, ALICE, 0.0)
        return time.monotonic() - began

    assert 0.3 < asyncio.run(wait()) < TIMEOUT


@contextmanager
def calling(request: urllib.request.Request) -> Iterator[None]:
    """Repeat a request while the block runs. The block starts after the first response."""
    is_over, has_called = threading.Event(), threading.Event()

    def call() -> None:
        while not is_over.is_set():
            status_of(request)
            has_called.set()
            is_over.wait(0.1)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert has_called.wait(TIMEOUT)
        yield
    finally:
        is_over.set()
        thread.join(TIMEOUT)


def refusal(invalid: urllib.request.Request, after: urllib.request.Request) -> urllib.error.HTTPError:
    """Repeat a pair of requests until the second one, which is invalid, gets 429. Return that response.

    The budget is refilled while a 429 is delayed, so the next request may be admitted.
    """
    answers: list[urllib.error.HTTPError] = []

    def is_refused() -> bool:
        status_of(after)
        with pytest.raises(urllib.error.HTTPError) as answer:
            urllib.request.urlopen(invalid, timeout=TIMEOUT)
        answers.append(answer.value)
        return answer.value.code == 429

    wait_until(is_refused)
    return answers[-1]


@pytest.mark.slow(seconds=15)
def test_row_43_every_entry_point_answers_429_in_its_own_shape(keys: tuple[str, str]) -> None:
    noisy, quiet = keys
    with web(**environment(WEB_WORKERS="1", LIMITS__BUDGET_SECONDS="0.001")) as url:
        # From here on both keys are known, and the noisy one has used more.
        assert [status_of(get(url, key)) for key in (quiet, noisy)] == [200, 200]
        is_active = urllib.request.Request(f"{url}/v1/unknown", headers={"Authorization": f"Bearer {quiet}"})
        for path in ("/api/v1/memory/search", "/mcp", "/v1/chat/completions"):
            headers = {"Authorization": f"Bearer {noisy}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}{path}", b"{}", headers)
            with calling(is_active):  # uses no thread
                answer = refusal(request, after=get(url, noisy))
            assert int(answer.headers["Retry-After"]) > 0
            told = json.loads(answer.read())
            error = told["error"] if path.startswith("/v1/") else told["errors"][0]
            assert "share of server time" in error.get("message", error.get("detail"))
        time.sleep(fair_shares.ACTIVE_SECONDS + 0.1)
        assert status_of(get(url, noisy)) == 200  # no other caller is active
