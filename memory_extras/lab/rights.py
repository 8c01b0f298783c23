"""Rights that pages of the extra take."""

SEE_PROBES = "lab.view_probe"
KEEP_PROBES = "lab.add_probe"
