"""The actors that jobs and the event log name."""

KEY = "key:"  # the prefix of an actor that is an API key; the key's own prefix follows
IN_WORDS = {"append": "new messages", "retain": "retention"}


def named_actor(actor: str, key_name: str | None = None) -> str:
    """Return an actor in words, such as "operator eve", or the name of its key if that is known."""
    if key_name and actor.startswith(KEY):
        return f"key “{key_name}”"
    kind, _, name = actor.partition(":")
    return f"{IN_WORDS.get(kind, kind.replace('_', ' '))} {name}".strip()
