"""The counters of the chat endpoint, in each web process."""

from prometheus_client import Counter

FAILURES = Counter("memory_chat_failures", "Calls that memory was not loaded for, or not stored of.", ["what"])
