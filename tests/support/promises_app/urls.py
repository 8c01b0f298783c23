"""The resource, and its URL."""

from django.urls import include, path
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin

from sessions_app.api.viewsets import PersonViewSet, api_router
from tests.support.promises_app.models import Promise


class PromiseRow(serializers.ModelSerializer[Promise]):
    """A promise."""

    class Meta:
        model = Promise
        fields = ("promise_id", "text", "created_at")


@extend_schema_view(list=extend_schema(description="Return what a person has promised, newest first."))
class PromiseViewSet(ListModelMixin, PersonViewSet[Promise]):
    """A person's promises."""

    queryset = Promise.objects.order_by("-pk")
    serializer_class = PromiseRow


router = api_router()
router.register("promises", PromiseViewSet, "promises")
urlpatterns = [path("api/v1/", include(router.urls))]
