"""The operator's pages."""

from moments_app.operator.admin.atom import MemoryAtomAdmin
from moments_app.operator.admin.circuit import CircuitAdmin
from moments_app.operator.admin.context_receipt import ContextReceiptAdmin
from moments_app.operator.admin.correction import ContradictionAdmin, CorrectionAdmin
from moments_app.operator.admin.embedding_model import EmbeddingModelAdmin
from moments_app.operator.admin.engine_call import EngineCallAdmin
from moments_app.operator.admin.entity import EntityAdmin
from moments_app.operator.admin.failure import FailureGroupAdmin
from moments_app.operator.admin.job import JobAdmin
from moments_app.operator.admin.known_person import KnownPersonAdmin
from moments_app.operator.admin.moment import MomentAdmin
from moments_app.operator.admin.prompt import PromptResourceAdmin
from moments_app.operator.admin.queue import ScheduleAdmin
from moments_app.operator.admin.release import ReleaseAdmin
from moments_app.operator.admin.retraction import RetractionAdmin
from moments_app.operator.admin.session import SessionAdmin
from moments_app.operator.admin.stored_item import StoredItemAdmin
from moments_app.operator.admin.stream import MemoryStreamAdmin
from moments_app.operator.admin.summary import SummaryAdmin
from moments_app.operator.admin.user_profile import UserProfileAdmin
from moments_app.operator.admin.webhook import WebhookDeliveryAdmin, WebhookEndpointAdmin

__all__ = [
    "CircuitAdmin",
    "ContextReceiptAdmin",
    "ContradictionAdmin",
    "CorrectionAdmin",
    "EmbeddingModelAdmin",
    "EngineCallAdmin",
    "EntityAdmin",
    "FailureGroupAdmin",
    "JobAdmin",
    "KnownPersonAdmin",
    "MemoryAtomAdmin",
    "MemoryStreamAdmin",
    "MomentAdmin",
    "PromptResourceAdmin",
    "ReleaseAdmin",
    "RetractionAdmin",
    "ScheduleAdmin",
    "SessionAdmin",
    "StoredItemAdmin",
    "SummaryAdmin",
    "UserProfileAdmin",
    "WebhookDeliveryAdmin",
    "WebhookEndpointAdmin",
]
