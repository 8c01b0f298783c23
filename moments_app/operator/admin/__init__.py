"""The admin's lists: one module per entry of the sidebar. Importing the package registers them."""

from moments_app.operator.admin import (
    atom,
    correction,
    engine_call,
    failure,
    job,
    moment,
    prompt,
    release,
    session,
    stream,
    user_profile,
    webhook,
)

__all__ = [
    "atom",
    "correction",
    "engine_call",
    "failure",
    "job",
    "moment",
    "prompt",
    "release",
    "session",
    "stream",
    "user_profile",
    "webhook",
]
