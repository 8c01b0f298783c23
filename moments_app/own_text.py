"""What this platform itself put into a conversation: memory must not feed on itself."""

TOOLS = ("session_partition", "search_long_term_memory", "get_context", "append_memory")
FENCES = ("<MemoryContext>", "[TOOL RESULT: session_partition]")


def is_own(tool_name: str, content: str) -> bool:
    """Whether a turn is a context that was served, a partition event, or the result of a memory tool."""
    return tool_name in TOOLS or any(fence in content for fence in FENCES)
