"""OAuth for assistants: an authorization server by django-oauth-toolkit, whose tokens stand for one person each."""
