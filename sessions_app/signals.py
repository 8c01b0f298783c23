"""What the transcript tells the rest of the product."""

from django.dispatch import Signal

# Sent by `append` inside its transaction, with `session` (locked, counters up to date) and `messages` (those added).
# A receiver returns the jobs that became due, each with `job_id`, `process` and `status`.
messages_appended = Signal()

# Sent outside any transaction, with `session`, before a load or context is answered for which a digest is wanted first.
digest_wanted = Signal()

# Sent by `retain`, in a transaction, with a `session` that has turns past their keep-by date which memory doesn't cover
# yet. They are kept until it does.
turns_overdue = Signal()

# Sent by `erase_user` inside its transaction, with `user` (locked, nobody adds anything of theirs): what refers to the
# profile is deleted afterwards. A receiver removes what is not found so, and returns how many rows, by name.
user_erasing = Signal()

# Sent by `export_user`. A receiver returns the files it adds, as `Part`s.
user_exporting = Signal()

# Sent by `import_user` inside its transaction, when the transcript is there, with `export` (the file), `user` and
# `sessions` (those that are new). A receiver restores what it has written, and returns how many rows, by name.
user_importing = Signal()
