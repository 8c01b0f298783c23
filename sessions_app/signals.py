"""Signals that the transcript sends to the rest of the product."""

from django.dispatch import Signal

# Sent by `append` inside its transaction, with `session` (locked, with up-to-date counters) and `messages` (the new
# ones). A receiver returns the jobs that became due, each with `job_id`, `process` and `status`.
messages_appended = Signal()

# Sent outside any transaction, with `session`, before a load or context is answered that wants a digest first.
digest_wanted = Signal()

# Sent by `retain` in a transaction, with a `session` that has turns past their keep-by date that memory doesn't cover
# yet. They are kept until it does.
turns_overdue = Signal()

# Sent by `erase_user` inside its transaction, with `user` (locked, so that nobody adds rows of theirs). Rows that refer
# to the profile are deleted afterward. A receiver removes what isn't found that way, and returns row counts by name.
user_erasing = Signal()

# Sent by `export_user`. A receiver returns the files that it adds, as `Part`s.
user_exporting = Signal()

# Sent by `import_user` inside its transaction, once the transcript is imported, with `export` (the file), `user` and
# `sessions` (the new ones). A receiver restores the files that it exported, and returns its row counts by name.
user_importing = Signal()
