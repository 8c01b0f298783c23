"""A real OpenID provider over HTTP, by Authlib's server, that can be told to misbehave.

    with OpenIDProvider() as provider:
        provider.claims = {"aud": "another"}   # replace claims of ID tokens

Its login page accepts any user id without a password. `sub` is the user id.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Self

import flask
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import UserInfo
from authlib.oidc.core.grants import OpenIDCode
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from werkzeug.serving import make_server

CLIENT_ID, CLIENT_SECRET = "memory", "a secret of the platform and the provider"
LOGIN = """<!doctype html><html lang="en"><title>Log in</title><h1>Example login</h1>
<form method="post"><label>User <input name="user"></label><button>Log in</button></form>"""


@cache
def signing_key(kid: str) -> RSAKey:
    """Return a key with this id."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


@dataclass
class User:
    """A user with this id."""

    id: str

    def get_user_id(self) -> str:
        return self.id


class Platform:
    """The platform as a client."""

    def __init__(self, callback: Callable[[], str]) -> None:
        self._callback = callback
        self.client_id, self.id_token_signed_response_alg = CLIENT_ID, "RS256"

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return self._callback()

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, uri: str) -> bool:
        return uri == self._callback()

    def check_client_secret(self, secret: str) -> bool:
        return secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, kind: str) -> bool:
        return kind == "code"

    def check_grant_type(self, kind: str) -> bool:
        return kind == "authorization_code"


@dataclass
class Code:
    """An authorization code."""

    code: str
    user: User
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str
    auth_time: int = field(default_factory=lambda: int(time.time()))

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class OpenIDProvider:
    """See the module's docstring.

    Attributes:
        callback: The platform's registered redirect URI.
        claims: Claims that replace those of ID tokens. None removes a claim.
        user_info: Further claims of the user.
        sign: Signs the claims of an ID token.
        metadata: Fields that replace those of the discovery document.
        other_keys: Further keys of the key set.
        before: Called with the path of each request. Its result, if any, is the response.
        requests: The paths of all requests.
        prompts: The `prompt` of each login.
    """

    def __init__(self) -> None:
        self.callback = ""
        self.claims: dict[str, Any] = {}
        self.user_info: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.other_keys: list[Any] = []
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.before: Callable[[str], Any] = lambda path: None
        self.requests: list[str] = []
        self.prompts: list[str] = []
        self.key = signing_key("first")
        self._codes: dict[str, Code] = {}
        self._server = make_server("127.0.0.1", 0, _as_over_https(self._application()), threaded=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def signed(self, claims: dict[str, Any]) -> str:
        """Return a valid ID token."""
        return self.signed_with(claims, self.key)

    @staticmethod
    def signed_with(claims: dict[str, Any], key: RSAKey, kid: str = "") -> str:
        """Return an ID token that is signed with this key, and names it or another one."""
        return jwt.encode({"alg": "RS256", "kid": kid or key.kid}, claims, key, ["RS256"])

    @staticmethod
    def signed_by_secret(claims: dict[str, Any]) -> str:
        """Return an ID token that is signed with the client secret."""
        return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(CLIENT_SECRET), ["HS256"])

    @staticmethod
    def unsigned(claims: dict[str, Any]) -> str:
        """Return an ID token with the algorithm `none`."""
        return jwt.encode({"alg": "none"}, claims, OctKey.import_key(CLIENT_SECRET), ["none"])

    def _application(self) -> flask.Flask:
        app = flask.Flask("provider")
        platform = Platform(lambda: self.callback)
        server = AuthorizationServer(app, query_client=lambda client_id: platform, save_token=lambda *_: None)
        server.register_grant(self._grant(), [_IDToken(self), CodeChallenge(required=True)])

        @app.before_request
        def noted() -> Any:
            self.requests.append(flask.request.path)
            return self.before(flask.request.path)

        @app.get("/.well-known/openid-configuration")
        def discovery() -> dict[str, Any]:
            return {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            } | self.metadata

        @app.get("/keys")
        def keys() -> dict[str, Any]:
            return {"keys": [*self.other_keys, *KeySet([self.key]).as_dict(private=False)["keys"]]}

        @app.route("/authorize", methods=["GET", "POST"])
        def authorize() -> Any:
            if flask.request.method == "GET":
                self.prompts.append(flask.request.args.get("prompt", ""))
                return LOGIN
            user = flask.request.form.get("user")
            grant = server.get_consent_grant(end_user=User(user or ""))
            return server.create_authorization_response(grant_user=User(user) if user else None, grant=grant)

        @app.post("/token")
        def token() -> Any:
            return server.create_token_response()

        return app

    def _grant(self) -> type[AuthorizationCodeGrant]:
        codes = self._codes

        class Grant(AuthorizationCodeGrant):  # type: ignore[misc]
            TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic"]

            def generate_authorization_code(self) -> str:
                return secrets.token_urlsafe(24)

            def save_authorization_code(self, code: str, request: Any) -> None:
                asked, data = request.payload, request.payload.data
                challenge = data["code_challenge"], data["code_challenge_method"]
                codes[code] = Code(code, request.user, asked.redirect_uri, asked.scope, data["nonce"], *challenge)

            def query_authorization_code(self, code: str, client: Any) -> Code | None:
                return codes.get(code)

            def delete_authorization_code(self, code: Code) -> None:
                codes.pop(code.code)

            def authenticate_user(self, code: Code) -> User:
                return code.user

        return Grant


def _as_over_https(app: Callable[..., Any]) -> Callable[..., Any]:
    """Return an application that believes that it is served over HTTPS, which Authlib requires."""
    return lambda environ, start: app(environ | {"wsgi.url_scheme": "https"}, start)


class _IDToken(OpenIDCode):  # type: ignore[misc]
    """The ID tokens of a provider."""

    def __init__(self, provider: OpenIDProvider) -> None:
        super().__init__(require_nonce=True)
        self._provider = provider

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return False

    def resolve_client_private_key(self, client: Any) -> RSAKey:
        return self._provider.key

    def get_client_claims(self, client: Any) -> dict[str, Any]:
        return {"iss": self._provider.issuer}

    def generate_user_info(self, user: User, scope: str) -> UserInfo:
        return UserInfo(sub=user.id, **self._provider.user_info)

    def process_token(self, grant: Any, response: Any) -> Any:
        token = super().process_token(grant, response)
        made = jwt.decode(token["id_token"], self._provider.key, ["RS256"]).claims | self._provider.claims
        token["id_token"] = self._provider.sign({name: value for name, value in made.items() if value is not None})
        return token
