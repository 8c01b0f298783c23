"""Pages and actions of the transcript's lists."""
