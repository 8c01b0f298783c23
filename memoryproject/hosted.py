"""Settings for a Django project that hosts these apps, and writes to memory in its own transactions.

    from memoryproject.hosted import APPS, SETTINGS

    INSTALLED_APPS += APPS
    globals().update(SETTINGS)

The platform's own processes use the same database: `memory-platform qcluster`, and its web server for REST and the
operators' pages.
"""

from typing import Any

from memoryproject import settings

APPS = ["django.contrib.postgres", "django_q", "sessions_app", "moments_app"]
NAMES = (
    "MOMENT_BUILDER",
    "ROLLING_SUMMARY",
    "MEMORY_FORMATION",
    "SESSION_COMPACTION",
    "MEMORY_CONTEXT",
    "ENGINE",
    "EMBEDDING",
    "RERANK",
    "CHAT",
    "RETENTION",
    "LIMITS",
    "DAILY_LIMITS",
    "JOBS",
    "NOTIFY",
    "WEBHOOKS",
    "READING_DAYS",
    "API_RATE",
    "API_MAX_BODY_BYTES",
    "MESSAGE_MAX_CHARS",
    "PROMPT_APPROVAL",
    "LOGIN_SECOND_FACTOR",
    "DATA_DIR",
    "DATABASE_IS_EMBEDDED",
    "SPOOL_DIR",
    "PROCESS",
    "JOB_SECONDS",
    "Q_CLUSTER",
    "REST_FRAMEWORK",
    "SPECTACULAR_SETTINGS",
)
SETTINGS: dict[str, Any] = {name: getattr(settings, name) for name in NAMES}
