"""Questions about a time, asked on Monday, 23 November 2026, at 15:00 in the person's time zone."""
