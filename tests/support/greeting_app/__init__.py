"""An app beside the product's own, which adds a process."""
