"""Who did something, as the log and jobs have it."""

KEY = "key:"  # how an actor begins that is a key, by its prefix


def named_actor(actor: str, key_name: str | None) -> str:
    """Write an actor with the name of its key, where that is known."""
    return f"key “{key_name}”" if key_name and actor.startswith(KEY) else actor
