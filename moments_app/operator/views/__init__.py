"""The admin's pages and actions that are too long for the module of their list, or that several lists share."""
