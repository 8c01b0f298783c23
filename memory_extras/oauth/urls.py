"""URLs for assistants. The library finds its own URLs by name in the namespace `oauth2_provider`."""

from django.urls import include, path

from memory_extras.oauth import end_user, openid, views
from memory_extras.oauth.conf import AUDIENCES, METADATA

_named = [
    path("authorize", end_user.OwnConsent.as_view(), name="authorize"),
    path("authorize/login", end_user.Login.as_view(), name="login"),
    path(openid.CALLBACK.removeprefix("/"), end_user.Callback.as_view(), name="callback"),
    path("authorize/logout", end_user.Logout.as_view(), name="logout"),
    path("authorize/grants", end_user.OwnGrants.as_view(), name="grants"),
    path("authorize/grants/login", end_user.OwnGrantsLogin.as_view(), name="grants-login"),
    path("authorize/grants/<int:pk>/revoke", end_user.RevokeOwnGrant.as_view(), name="revoke-grant"),
    path("token", views.Token.as_view(), name="token"),
    path("revoke", views.Revoke.as_view(), name="revoke-token"),
    path("register", views.Register.as_view(), name="dcr-register"),
    path(".well-known/oauth-authorization-server", views.ServerMetadata.as_view(), name="oauth-server-metadata"),
]
urlpatterns = [
    path("", include((_named, "oauth2_provider"))),
    path(METADATA.removeprefix("/"), views.ResourceMetadata.as_view()),
    *(
        path(f"{METADATA}{audience}".removeprefix("/"), views.ResourceMetadata.as_view(audience=audience))
        for audience in AUDIENCES
    ),
]
