"""The web process."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
os.environ.setdefault("MEMORY_PROCESS", "web")

from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
