"""Pages and actions for operators that are too long for their list's module, or that several lists share."""
