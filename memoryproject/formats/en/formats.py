"""Date formats of the pages: short, sortable, in UTC, and the same for every operator."""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "Y-m-d H:i:s"
