"""Date formats of the pages: short, sortable, the same for every operator, in UTC."""

DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "Y-m-d H:i:s"
