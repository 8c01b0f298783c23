"""The counters of the chat endpoint, in each web process."""

from prometheus_client import Counter

FAILURES = Counter(
    "memory_chat_failures", "Chat calls that ran without memory, were not spooled, or were not stored.", ["what"]
)
