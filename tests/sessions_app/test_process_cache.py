"""The caches within a process."""

from sessions_app.process_cache import ProcessCache, cached_by_hash
from tests.support.concurrency import at_once


def test_the_least_recently_used_entries_are_dropped_first() -> None:
    cache: ProcessCache[str, int] = ProcessCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c"), len(cache)) == (1, None, 3, 2)


def test_the_size_of_all_entries_is_limited_and_larger_values_are_not_cached() -> None:
    cache: ProcessCache[str, str] = ProcessCache(5, size_of=len)
    cache.put("a", "12")
    cache.put("b", "345")
    cache.put("c", "6")
    assert [key for key in "abc" if key in cache] == ["b", "c"]
    cache.put("c", "too large")
    assert [key for key in "abc" if key in cache] == ["b"]


def test_expired_dropped_and_cleared_entries_are_not_returned() -> None:
    old: ProcessCache[str, int] = ProcessCache(2, seconds=0)
    old.put("a", 1)
    old.drop("a")
    assert old.get("a") is None and "a" not in old
    cache: ProcessCache[str, int] = ProcessCache(2, seconds=60)
    for key in "ab":
        cache.put(key, 1)
    cache.drop("a")
    cache.drop("a")
    assert (cache.get("a"), cache.get("b")) == (None, 1)
    cache.clear()
    assert len(cache) == 0


def test_threads_can_share_a_cache() -> None:
    cache: ProcessCache[int, int] = ProcessCache(10, seconds=0.001)

    def use(number: int) -> None:
        for key in range(2_000):
            cache.put(key % 17, number)
            cache.get(key % 13)
            cache.drop(key % 11)

    at_once(use, 8)
    assert len(cache) <= 10


def test_results_are_cached_by_the_hash_of_the_arguments_until_the_cache_is_full() -> None:
    calls = []

    @cached_by_hash(2)
    def length(text: str, more: int) -> int | None:
        calls.append(text)
        return len(text) + more if text else None

    assert [length("ab", 1), length("ab", 1), length("ab", 2)] == [3, 3, 4] and calls == ["ab", "ab"]
    assert length("", 0) is None and length("", 0) is None and calls == ["ab", "ab", ""]
    assert length("ab", 1) == 3 and calls == ["ab", "ab", "", "ab"]
