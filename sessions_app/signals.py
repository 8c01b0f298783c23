"""Signals from the transcript to other apps."""

from django.dispatch import Signal

# Sent outside any transaction, with `session`, before a load or context if the session needs a digest first.
digest_wanted = Signal()

# Sent by `retain` in a transaction, with a `session` whose turns past the retention period memory doesn't cover yet.
# They are kept until it does.
turns_overdue = Signal()

# Sent by `import_sessions` in a transaction that holds the people, with `people` (user_ids to profiles) and
# `statements` (another system's facts about them). A receiver returns how many of these are new.
statements_imported = Signal()

# Sent in the transaction of a request that edits a profile, which is locked, with `profile`, the `edits` (fields to
# their values) and the `actor`.
profile_edited = Signal()

# Sent in a transaction to call a function in the background after the commit. `function` is its path, `args` are in
# JSON, and `user_pk` is the primary key of the person concerned, or None.
call_wanted = Signal()
