"""OAuth for assistants: an authorization server by django-oauth-toolkit. Each token represents one person."""
