"""The organization's OpenID provider, where end users log in (OpenID Connect, authorization code flow with PKCE).

Authlib creates the requests and verifies ID tokens. It is imported on first use, because most sites don't need it.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog
from django.db import connection
from rest_framework.exceptions import ValidationError as RefusedByApi

from memory_extras.oauth.conf import OAuthSettings, current
from memory_extras.oauth.models import LOOPBACK
from sessions_app.api.fields import PublicIdField
from sessions_app.process_cache import ProcessCache

logger = structlog.get_logger(__name__)
Result = TypeVar("Result")

CALLBACK = "/authorize/callback"
SECONDS = 5  # timeout for connecting, and for each read
TOTAL_SECONDS = 10  # maximum time that a page waits for the provider
MAX_CONCURRENT_CALLS = 2  # maximum calls to the provider per web process, so that other requests have threads
BUSY_SECONDS = 2  # maximum wait until such a call can start
CACHE_SECONDS = 3_600  # how long the discovery document is cached; unknown signing keys are fetched immediately
LEEWAY = 60  # seconds by which the provider's clock may differ
# Accept only signatures with a public key, even if the discovery document lists others.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
METHODS = ["client_secret_basic", "client_secret_post"]  # in order of preference
ENDPOINTS = ["authorization_endpoint", "token_endpoint", "jwks_uri"]

_clients: ProcessCache[OAuthSettings, Any] = ProcessCache(1, seconds=CACHE_SECONDS)
_free_slots = threading.BoundedSemaphore(MAX_CONCURRENT_CALLS)
_executor = ThreadPoolExecutor(MAX_CONCURRENT_CALLS, thread_name_prefix="openid")


class LoginFailed(Exception):
    """A failed login. The message is for the end user, and `status` is that of the page."""

    status = 400


class LoginCancelled(LoginFailed):
    """The end user did not log in at the provider."""

    status = 200


class ProviderUnavailable(LoginFailed):
    """The provider did not respond, or its response was invalid."""

    status = 503


class UnusableProvider(Exception):
    """The provider's discovery document can't be used. The message is for the log."""


@dataclass(frozen=True)
class StartedLogin:
    """A login that was started at the provider.

    Args:
        secrets: The `state`, `nonce` and `code_verifier` of the login. They belong to the end user's browser.
    """

    url: str
    secrets: dict[str, str]


def start(*, prompt: str = "") -> StartedLogin:
    """Start a login, or raise `LoginFailed`. With the prompt `login`, the provider asks for the password again."""
    asked = {"prompt": prompt} if prompt else {}
    made = _call_provider(lambda: _client().create_authorization_url(_callback(), **asked))
    return StartedLogin(made.pop("url"), made)


def user_id_of(code: str, secrets: Mapping[str, str]) -> str:
    """Exchange a login's code for an ID token, verify the token, and return the end user's id.

    Args:
        secrets: The secrets of the login in the same browser.

    Raises:
        LoginFailed: The provider is not available, or the token isn't valid.
    """
    return _id_in(_call_provider(lambda: _verified(code, secrets)))


def _verified(code: str, secrets: Mapping[str, str]) -> Mapping[str, Any]:
    group, client = current(), _client()
    token = client.fetch_access_token(_callback(), code=code, code_verifier=secrets["code_verifier"])
    expected = {"iss": group.openid_issuer, "aud": group.openid_client_id}
    options = {name: {"essential": True, "value": value} for name, value in expected.items()}
    claims = client.parse_id_token(token, secrets["nonce"], claims_options=options, leeway=LEEWAY)
    if claims is None:
        raise ValueError("the response has no ID token")
    return dict(claims)


def _id_in(claims: Mapping[str, Any]) -> str:
    name = current().openid_user_claim
    try:
        user_id = str(PublicIdField().run_validation(claims.get(name)))
    except RefusedByApi:
        user_id = ""
    if not user_id or (name == "email" and claims.get("email_verified") is not True):
        logger.warning("an ID token has no usable user id", claim=name)
        raise LoginFailed("Your login has no usable user id. Ask your administrator for help.")
    return user_id


def _callback() -> str:
    return f"{current().site}{CALLBACK}"


def _client() -> Any:
    """Return Authlib's client for the provider. The client caches the provider's signing keys."""
    group = current()
    if (client := _clients.get(group)) is None:
        client = _discovered(group)
        _clients.put(group, client)
    return client


def _discovered(group: OAuthSettings) -> Any:
    """Return a client for the provider that its discovery document describes, or raise `UnusableProvider`."""
    from authlib.integrations.requests_client import OAuth2Session

    from memory_extras.oauth.openid_client import OpenIDClient

    http = {"default_timeout": SECONDS, "max_redirects": 0}
    with OAuth2Session(**http) as session:
        url = f"{group.openid_issuer.rstrip('/')}/.well-known/openid-configuration"
        answer = session.request("GET", url, withhold_token=True)
        answer.raise_for_status()
        found = answer.json()
    if found["issuer"] != group.openid_issuer:
        raise UnusableProvider("the discovery document is for another issuer")
    if not all(_is_safe(found[name]) for name in ENDPOINTS):
        raise UnusableProvider("an endpoint doesn't use HTTPS")
    offered = found.get("token_endpoint_auth_methods_supported", METHODS)
    method = next((known for known in METHODS if known in offered), None)
    if method is None:
        raise UnusableProvider(f"the provider supports none of {', '.join(METHODS)}")
    own = {
        "scope": "openid" if group.openid_user_claim == "sub" else "openid profile email",
        "code_challenge_method": "S256",
        "token_endpoint_auth_method": method,
    }
    return OpenIDClient(
        None,
        client_id=group.openid_client_id,
        client_secret=group.openid_client_secret.get_secret_value(),
        authorize_url=found["authorization_endpoint"],
        access_token_url=found["token_endpoint"],
        jwks_uri=found["jwks_uri"],
        id_token_signing_alg_values_supported=ALGORITHMS,
        client_kwargs=http | own,
    )


def _is_safe(url: str) -> bool:
    """Return whether a URL uses HTTPS, or is on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


def _call_provider(call: Callable[[], Result]) -> Result:
    """Call the provider, within `TOTAL_SECONDS`, without a database connection. Log errors and raise `LoginFailed`."""
    connection.close()
    if not _free_slots.acquire(timeout=BUSY_SECONDS):
        raise ProviderUnavailable("Too many people are logging in at the moment. Try again.")
    try:
        return _executor.submit(_release_after, call).result(TOTAL_SECONDS)
    except OSError as error:  # including a timeout
        logger.warning("the OpenID provider is not available", error=type(error).__name__)
        raise ProviderUnavailable("The login service of your organization doesn't respond. Try again.") from None
    except UnusableProvider as error:
        logger.error("the OpenID provider can't be used", why=str(error))
        raise ProviderUnavailable("Login is not possible at the moment. Ask your administrator for help.") from None
    except Exception as error:  # from Authlib or joserfc, or caused by a malformed response
        code = getattr(error, "error", "")  # such as invalid_client
        logger.warning("a login at the OpenID provider failed", error=type(error).__name__, code=code)
        raise LoginFailed("Your login could not be verified. Try again.") from None


def _release_after(call: Callable[[], Result]) -> Result:
    try:
        return call()
    finally:
        _free_slots.release()
