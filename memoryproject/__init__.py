"""The site: settings, addresses, schedules, health; and which release this is."""

__version__ = "1.0.0rc1"
