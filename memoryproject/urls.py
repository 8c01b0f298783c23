"""All URLs of the site."""

from typing import Any

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularSwaggerSplitView

from memoryproject import extras
from memoryproject.serving.schema_view import schema
from memoryproject.settings import CONF
from memoryproject.status import checks, metrics

# The OpenAPI schema contains no personal data. It is public, so that clients can be generated from it.
open_to_all: dict[str, Any] = {"authentication_classes": [], "permission_classes": []}

admin.autodiscover()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("sessions_app.api.urls")),
    path("api/v1/", include("moments_app.interfaces.api.urls")),
    path("api/v1/schema", schema, name="schema"),
    path(
        "api/v1/docs",
        SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="api_docs.html", **open_to_all),
        name="docs",
    ),
    path("healthz", checks.healthz),
    path("readyz", checks.readyz),
    path("metrics", metrics.MetricsView.as_view()),
    *(path("", include(urls)) for urls in extras.modules(CONF.extras, "urls")),
]

handler400 = "sessions_app.api.error_pages.bad_request"
handler404 = "sessions_app.api.error_pages.not_found"
handler500 = "sessions_app.api.error_pages.server_error"
