"""Pages and actions of the operator, a file a subject."""
