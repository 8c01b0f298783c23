"""Settings of the extra, and its changes to Django's settings."""

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings
from pydantic import Field, SecretStr, model_validator

from memoryproject.admin_menu import Entry, add_tab
from memoryproject.conf import Group

NAME = "OAUTH"  # the name of `OAuthSettings` in Django's settings
ACCESS, REFRESH = "mem_oauth_", "mem_refresh_"  # prefixes of tokens; all secrets of this platform start with mem_
CODE_SECONDS = 60
GRANT_TYPES = ["authorization_code", "refresh_token"]
TOKEN_LIFETIME = timedelta(minutes=60)  # after this time, the assistant must refresh its token
# The descriptions of the scopes on the consent page.
SCOPE_TEXTS = {
    "read": "Read: search, get contexts, read facts and single turns",
    "write": "Write: add, correct and end facts",
    "export": "Export: download all data about the person",
    "chat": "Chat: send chat requests with memory; your model provider bills them",
}
MODELS = {
    "APPLICATION": "oauth.Assistant",
    "GRANT": "oauth.Code",
    "ACCESS_TOKEN": "oauth.AccessToken",
    "REFRESH_TOKEN": "oauth.RefreshToken",
    "ID_TOKEN": "oauth2_provider.IDToken",  # unused, but required by migrations
}
# The parts of the site that a token can be issued for (RFC 8707).
MCP, REST, CHAT = "/mcp", "/api/v1", "/v1"
# The display name of each audience, and its possible scopes. The first audience is the default.
AUDIENCES = {MCP: "memory tools (MCP)", REST: "the REST interface", CHAT: "the chat endpoint"}
SCOPES_OF = {MCP: ("read", "write"), REST: ("read", "write", "export"), CHAT: ("chat",)}
METADATA = "/.well-known/oauth-protected-resource"
MAX_DAYS = 365  # maximum duration of a grant


class OAuthSettings(Group):
    """Settings for assistants that request access, and for the OpenID provider where end users log in."""

    site: str = Field(
        "",
        pattern=r"^(https://[^/?#\s]+|http://(localhost|127\.0\.0\.1)(:\d+)?)?$",
        description="Public URL of the site, such as `https://memory.example.com`. If `OAUTH__SITE` is set, "
        "assistants can request access to `/mcp` with OAuth.",
    )
    open_registration: bool = Field(
        False,
        description="Let any assistant register itself. If `false`, an administrator registers each assistant with "
        "`manage.py register_assistant`.",
    )
    openid_issuer: str = Field(
        "",
        pattern=r"^(https://[^?#\s]+|http://(localhost|127\.0\.0\.1)(:\d+)?(/[^?#\s]*)?)?$",
        description="Issuer URL of the OpenID provider where end users log in to grant assistants access to their own "
        "memory. If unset, only operators grant access.",
    )
    openid_client_id: str = Field("", description="Client id at the OpenID provider.")
    openid_client_secret: SecretStr = Field(SecretStr(""), description="Client secret at the OpenID provider.")
    openid_user_claim: str = Field(
        "sub",
        min_length=1,
        description="Claim of the ID token that contains the end user's `user_id`.",
    )
    openid_application: str = Field(
        "", description="Application of the end users, which must exist. If unset, the first application is used."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> "OAuthSettings":
        client = bool(self.openid_client_id), bool(self.openid_client_secret.get_secret_value())
        if self.openid_issuer and not all(client):
            raise ValueError("OAUTH__OPENID_ISSUER needs OAUTH__OPENID_CLIENT_ID and OAUTH__OPENID_CLIENT_SECRET")
        if self.openid_issuer and not self.site:
            raise ValueError("OAUTH__OPENID_ISSUER needs OAUTH__SITE")
        if not self.openid_issuer and (any(client) or self.openid_application):
            raise ValueError("other OpenID settings are set, but OAUTH__OPENID_ISSUER is missing")
        return self

    @property
    def is_on(self) -> bool:
        """Whether assistants may request access."""
        return bool(self.site)

    @property
    def has_login(self) -> bool:
        """Whether end users can log in at an OpenID provider."""
        return bool(self.openid_issuer)


class Settings(Group):
    oauth: OAuthSettings = OAuthSettings()


def current() -> OAuthSettings:
    group: OAuthSettings = getattr(django_settings, NAME)
    return group


def resource_of(audience: str) -> str:
    """Return the URL that identifies an audience to clients."""
    return f"{current().site}{audience}"


def audience_of(path: str) -> str:
    """Return the audience of a path, or a blank string."""
    return next((audience for audience in AUDIENCES if path == audience or path.startswith(f"{audience}/")), "")


def audience_named(resource: str) -> str:
    """Return the audience with this resource indicator, or a blank string."""
    return next((audience for audience in AUDIENCES if resource == resource_of(audience)), "")


def extend(settings: dict[str, Any]) -> None:
    settings[NAME] = settings["CONF"].oauth
    apps = settings["INSTALLED_APPS"]
    # before the extra, so that the library registers its admin pages first, and the extra can replace them
    apps.insert(apps.index("memory_extras.oauth"), "oauth2_provider")
    settings |= {f"OAUTH2_PROVIDER_{kind}_MODEL": model for kind, model in MODELS.items()}
    settings["OAUTH2_PROVIDER"] = provider(settings[NAME])
    # At lower levels, these libraries log each cleanup, parts of requests, and the secrets of logins.
    settings["LOGGING"]["loggers"] |= {name: {"level": "WARNING"} for name in ("oauth2_provider", "authlib")}
    add_tab("oauth.assistant", Entry("assistant", "assistants", "smart_toy"), beside="sessions_app.apikey")


def provider(group: OAuthSettings) -> dict[str, Any]:
    return {
        "OAUTH2_VALIDATOR_CLASS": "memory_extras.oauth.validator.Validator",
        "OAUTH2_BACKEND_CLASS": "memory_extras.oauth.validator.Backend",
        "SCOPES": SCOPE_TEXTS,
        "DEFAULT_SCOPES": [],
        "ACCESS_TOKEN_GENERATOR": "memory_extras.oauth.conf.new_access_token",
        "REFRESH_TOKEN_GENERATOR": "memory_extras.oauth.conf.new_refresh_token",
        "AUTHORIZATION_CODE_EXPIRE_SECONDS": CODE_SECONDS,
        "REFRESH_TOKEN_EXPIRE_SECONDS": MAX_DAYS * 86_400,
        "REFRESH_TOKEN_REUSE_PROTECTION": True,
        "EXTRA_SERVER_KWARGS": {"token_expires_in": _seconds_left},
        "PKCE_REQUIRED": True,
        "ALLOWED_REDIRECT_URI_SCHEMES": ["https"],  # unused, because `check_redirect_uri` decides
        "COMPLIANT_BCP_RFC9700_IMPLICIT_GRANT": True,
        "COMPLIANT_BCP_RFC9700_PASSWORD_GRANT": True,
        "COMPLIANT_BCP_RFC9700_PKCE_METHOD": True,
        "COMPLIANT_BCP_RFC9700_ACCESS_TOKEN_TRANSPORT": True,
        "COMPLIANT_BCP_RFC9700_AUTHZ_RESPONSE_ISS": True,
        "COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": True,
        "OIDC_ISS_ENDPOINT": group.site,
        "DCR_ENABLED": group.open_registration,
        "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
        "OAUTH2_GRANT_TYPES_SUPPORTED": GRANT_TYPES,
        "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none"],
        "OAUTH2_PROTECTED_RESOURCE_NAME": "Memory platform",
    }


def new_access_token(request: Any) -> str:
    return f"{ACCESS}{secrets.token_urlsafe(32)}"


def new_refresh_token(request: Any) -> str:
    return f"{REFRESH}{secrets.token_urlsafe(32)}"


def _seconds_left(request: Any) -> int:
    """Return how long a new access token is valid, at most as long as its consent."""
    seconds: int = request.consent.seconds_left()
    return seconds
