"""Permissions for pages of the extra."""

SEE_PROBES = "lab.view_probe"
KEEP_PROBES = "lab.add_probe"
