"""Pages and actions beside the transcript's lists."""
