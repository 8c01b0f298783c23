"""Words by which rules recognize numbers and dates in plain English."""

SPOKEN = "zero one two three four five six seven eight nine ten eleven twelve".split()  # each at its own place
MONTHS = "january february march april may june july august september october november december".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
