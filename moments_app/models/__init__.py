"""The tables of memory, one module a concept."""

from moments_app.models.engine_call import EngineCall
from moments_app.models.job import Job
from moments_app.models.moment import Moment
from moments_app.models.prompt import PromptResource, PromptVersion
from moments_app.models.summary import Summary

__all__ = ["EngineCall", "Job", "Moment", "PromptResource", "PromptVersion", "Summary"]
