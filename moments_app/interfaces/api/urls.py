"""The URLs of the memory API, under `/api/v1/`."""

from django.urls import path

from moments_app.interfaces.api import (
    atoms,
    entities,
    facts,
    items,
    jobs,
    memory,
    moments,
    prompts,
    retractions,
    streams,
)
from sessions_app.api.viewsets import api_router

router = api_router()
router.register("memory", memory.SearchViewSet, "memory")
router.register("moments", moments.MomentViewSet, "moments")
router.register("facts", facts.FactViewSet, "facts")
router.register("corrections", facts.CorrectionViewSet, "corrections")
router.register("sessions/<public_id:session_id>/summaries", moments.SummaryViewSet, "summaries")
router.register("sessions", moments.CompactViewSet, "sessions")
router.register("jobs", jobs.JobViewSet, "jobs")
router.register("entities", entities.EntityViewSet, "entities")
router.register("users/<public_id:user_id>/people", entities.PeopleViewSet, "people")
router.register("streams", streams.StreamViewSet, "streams")
router.register("streams/<uuid:stream_id>/atoms", atoms.AtomViewSet, "atoms")
router.register("streams/<uuid:stream_id>/retractions", retractions.ShardRetractionViewSet, "shardretractions")
router.register("retractions", retractions.RetractionViewSet, "retractions")
router.register("prompts", prompts.PromptViewSet, "prompts")
router.register("prompts/<public_id:name>/versions", prompts.PromptVersionViewSet, "promptversions")

urlpatterns = [
    # First, because it is requested most often and Django tries patterns in order.
    path(
        "memory/context",
        memory.ContextViewSet.as_view({"get": "read", "post": "read_long"}, basename="context"),
        name="context",
    ),
    *router.urls,
    path(
        "entities/<uuid:entity_id>/links",
        entities.LinkViewSet.as_view({"get": "list", "post": "create", "delete": "destroy"}, basename="links"),
        name="links",
    ),
    path("items", items.ItemViewSet.as_view({"post": "create"}, basename="items"), name="items"),
    path("items/get", items.ItemViewSet.as_view({"post": "retrieve"}, basename="items"), name="items-get"),
    path("items/delete", items.ItemViewSet.as_view({"post": "destroy"}, basename="items"), name="items-delete"),
    path("items/search", items.ItemViewSet.as_view({"post": "search"}, basename="items"), name="items-search"),
    path(
        "items/namespaces",
        items.ItemNamespaceViewSet.as_view({"post": "list"}, basename="itemnamespaces"),
        name="items-namespaces",
    ),
    path(
        "coverage",
        jobs.CoverageViewSet.as_view({"get": "retrieve", "post": "retry"}, basename="coverage"),
        name="coverage",
    ),
]
