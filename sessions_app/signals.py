"""What the transcript asks of the rest of the product."""

from django.dispatch import Signal

# Sent outside any transaction, with `session`, before a load or context is answered for which a digest is wanted first.
digest_wanted = Signal()

# Sent by `retain`, in a transaction, with a `session` that has turns past their keep-by date which memory doesn't cover
# yet. They are kept until it does.
turns_overdue = Signal()

# Sent by `import_sessions`, in a transaction that holds the people, with `people` (user_ids to profiles) and what
# another system remembered of them (`statements`). A receiver returns how many of them are new.
statements_imported = Signal()

# Sent in the transaction of a request that edits a profile, which is locked, with `profile`, the `edits` (fields to
# their values) and the `actor`.
profile_edited = Signal()

# Sent in a transaction after which a function is to be called in the background: its path `function`, `args` as JSON
# takes them, and `user_pk`, the primary key of the person that it is about, or None.
call_wanted = Signal()
