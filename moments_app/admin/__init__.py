"""The operator's pages."""

from moments_app.admin.atom import MemoryAtomAdmin
from moments_app.admin.context_receipt import ContextReceiptAdmin
from moments_app.admin.embedding_model import EmbeddingModelAdmin
from moments_app.admin.engine_call import EngineCallAdmin
from moments_app.admin.entity import EntityAdmin
from moments_app.admin.job import JobAdmin
from moments_app.admin.moment import MomentAdmin
from moments_app.admin.prompt import PromptResourceAdmin
from moments_app.admin.queue import FailureAdmin, QueueAdmin, ScheduleAdmin
from moments_app.admin.retraction import RetractionAdmin
from moments_app.admin.session import SessionAdmin
from moments_app.admin.stream import MemoryStreamAdmin
from moments_app.admin.summary import SummaryAdmin
from moments_app.admin.user_profile import UserProfileAdmin

__all__ = [
    "ContextReceiptAdmin",
    "EmbeddingModelAdmin",
    "EngineCallAdmin",
    "EntityAdmin",
    "FailureAdmin",
    "JobAdmin",
    "MemoryAtomAdmin",
    "MemoryStreamAdmin",
    "MomentAdmin",
    "PromptResourceAdmin",
    "QueueAdmin",
    "RetractionAdmin",
    "ScheduleAdmin",
    "SessionAdmin",
    "SummaryAdmin",
    "UserProfileAdmin",
]
