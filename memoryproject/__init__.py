"""The site: settings, URLs, schedules, health checks and the release number."""

__version__ = "1.0.0rc1"
