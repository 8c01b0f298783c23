"""The actors that jobs and the event log name."""

KEY = "key:"  # the prefix of an actor that is an API key; the key's own prefix follows


def named_actor(actor: str, key_name: str | None) -> str:
    """Return an actor for display, with the name of its key if that is known."""
    return f"key “{key_name}”" if key_name and actor.startswith(KEY) else actor
