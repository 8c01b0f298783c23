"""Pages and actions for operators, one file per subject."""
