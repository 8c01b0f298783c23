"""Run database work in threads, so that it doesn't block the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.conf import settings
from django.db import connection

from memoryproject.serving.fair_shares import caller, charge_caller
from memoryproject.serving.request_limits import SPARE, ThreadsOfLoops
from sessions_app.database.statement_timeouts import Kind, serving

T = TypeVar("T")

_threads = ThreadPoolExecutor(settings.DATABASE_POOL_SIZE, thread_name_prefix="chat")
_shares = ThreadsOfLoops(max(settings.DATABASE_POOL_SIZE - SPARE, 1))


async def in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread, and close its database connection afterwards.

    Each application has a share of the threads, so none can occupy all of them.
    """
    run = copy_context().run
    async with _shares.current().occupy_share(caller()), charge_caller():
        return await asyncio.get_running_loop().run_in_executor(_threads, run, _done_and_closed, work)


def _done_and_closed(work: Callable[[], T]) -> T:
    try:
        with serving(Kind.CALL):
            return work()
    finally:
        connection.close()
