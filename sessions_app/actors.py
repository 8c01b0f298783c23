"""Who did something, as the log and jobs have it."""

KEY = "key:"  # how an actor begins that is a key, by its prefix


IN_WORDS = {"append": "new messages", "retain": "retention"}


def named_actor(actor: str, key_name: str | None = None) -> str:
    """Write an actor in words, such as "operator eve", with the name of its key, where that is known."""
    if key_name and actor.startswith(KEY):
        return f"key “{key_name}”"
    kind, _, name = actor.partition(":")
    return f"{IN_WORDS.get(kind, kind.replace('_', ' '))} {name}".strip()
