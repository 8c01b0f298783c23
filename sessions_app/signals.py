"""Signals from the transcript to other apps."""

from django.dispatch import Signal

# Sent outside of transactions with `session`, before a load or a context, if the session needs a digest first.
digest_wanted = Signal()

# Sent by `retain` in a transaction with `session`, if the session has turns past the retention period that memory
# doesn't cover yet. The turns are kept until memory covers them.
turns_overdue = Signal()

# Sent by `import_sessions` in a transaction that protects the people from erasure. `people` maps user_ids to profiles,
# and `statements` are another system's facts about them. A receiver returns the number of new facts.
statements_imported = Signal()

# Sent in the transaction of a request that edits a profile. `profile` is locked, `edits` maps fields to new values, and
# `actor` is the editor.
profile_edited = Signal()

# Sent in a transaction, to call a function in the background after the commit. `function` is its path, `args` are JSON
# values, and `user_pk` is the primary key of the person concerned, or None.
call_wanted = Signal()
