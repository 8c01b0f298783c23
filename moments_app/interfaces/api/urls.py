"""The addresses of memory's API, under `/api/v1/`."""

from django.urls import path

from moments_app.interfaces.api import (
    atoms,
    context,
    coverage,
    entities,
    jobs,
    moments,
    profile_lines,
    retractions,
    search,
    streams,
    summaries,
)

urlpatterns = [
    path("users/<public_id:user_id>/lines", profile_lines.ProfileLinesView.as_view(), name="profile_lines"),
    path("moments", moments.MomentsView.as_view(), name="moments"),
    path("moments/build", moments.BuildView.as_view(), name="build_moments"),
    path("moments/<public_id:key>", moments.MomentView.as_view(), name="moment"),
    path("moments/<public_id:key>/chain", moments.ChainView.as_view(), name="moment_chain"),
    path("sessions/<public_id:session_id>/summaries", summaries.SummariesView.as_view(), name="summaries"),
    path("sessions/<public_id:session_id>/compact", summaries.CompactView.as_view(), name="compact"),
    path("entities", entities.EntitiesView.as_view(), name="entities"),
    path("entities/<uuid:entity_id>", entities.EntityView.as_view(), name="entity"),
    path("entities/<uuid:entity_id>/links", entities.LinksView.as_view(), name="entity_links"),
    path("streams", streams.StreamsView.as_view(), name="streams"),
    path("streams/<uuid:stream_id>", streams.StreamView.as_view(), name="stream"),
    path("streams/<uuid:stream_id>/atoms", atoms.AtomsView.as_view(), name="stream_atoms"),
    path("streams/<uuid:stream_id>/consolidate", streams.ConsolidateView.as_view(), name="stream_consolidate"),
    path("streams/<uuid:stream_id>/undo", streams.UndoView.as_view(), name="stream_undo"),
    path("coverage", coverage.CoverageView.as_view(), name="coverage"),
    path("memory/context", context.ContextView.as_view(), name="memory_context"),
    path("memory/search", search.SearchView.as_view(), name="memory_search"),
    path("retractions", retractions.RetractionsView.as_view(), name="retractions"),
    path("retractions/<uuid:retraction_id>", retractions.RetractionView.as_view(), name="retraction"),
    path("retractions/<uuid:retraction_id>/undo", retractions.UndoView.as_view(), name="retraction_undo"),
    path("jobs", jobs.JobsView.as_view(), name="jobs"),
    path("jobs/<uuid:job_id>", jobs.JobView.as_view(), name="job"),
    path("jobs/<uuid:job_id>/retry", jobs.JobRetryView.as_view(), name="job_retry"),
]
