"""The parts of the site that a token can be for (RFC 8707), and the scopes that each part has."""

from memory_extras.oauth.conf import current

MCP, REST, CHAT = "/mcp", "/api/v1", "/v1"
# What each audience is called, and the scopes that a token for it can have. The first one is the default.
NAMES = {MCP: "memory tools (MCP)", REST: "the REST interface", CHAT: "the chat endpoint"}
SCOPES_OF = {MCP: ("read", "write"), REST: ("read", "write", "export"), CHAT: ("chat",)}


def resource_of(audience: str) -> str:
    """Return the address by which clients name an audience."""
    return f"{current().site}{audience}"


def audience_of(path: str) -> str:
    """Return the audience that a path belongs to; blank for none."""
    return next((audience for audience in NAMES if path == audience or path.startswith(f"{audience}/")), "")


def audience_named(resource: str) -> str:
    """Return the audience that a resource indicator names; blank for none."""
    return next((audience for audience in NAMES if resource == resource_of(audience)), "")
