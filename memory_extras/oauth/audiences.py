"""The parts of the site that a token can be issued for (RFC 8707), and the scopes of each."""

from memory_extras.oauth.conf import current

MCP, REST, CHAT = "/mcp", "/api/v1", "/v1"
# The display name of each audience, and its possible scopes. The first audience is the default.
NAMES = {MCP: "memory tools (MCP)", REST: "the REST interface", CHAT: "the chat endpoint"}
SCOPES_OF = {MCP: ("read", "write"), REST: ("read", "write", "export"), CHAT: ("chat",)}


def resource_of(audience: str) -> str:
    """Return the URL that identifies an audience to clients."""
    return f"{current().site}{audience}"


def audience_of(path: str) -> str:
    """Return the audience of a path, or a blank string."""
    return next((audience for audience in NAMES if path == audience or path.startswith(f"{audience}/")), "")


def audience_named(resource: str) -> str:
    """Return the audience with this resource indicator, or a blank string."""
    return next((audience for audience in NAMES if resource == resource_of(audience)), "")
