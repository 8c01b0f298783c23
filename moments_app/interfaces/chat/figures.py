"""The counters of the chat endpoint, in each web process."""

from prometheus_client import Counter

FAILURES = Counter("memory_chat_failures", "Calls without memory, without a spool, or not stored.", ["what"])
