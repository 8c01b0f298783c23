"""A Django project that hosts the apps: `examples/host_project`, on the test's database."""

import json
import subprocess
import sys

import pytest

from memoryproject.conf import BASE_DIR
from sessions_app.models import Message
from tests.support.first_steps import python_in
from tests.support.processes import environment

USED = """
import json
import sys

import django
django.setup()
from django.contrib import admin
from django.core.management import call_command
from django.db import connection
from django.urls import reverse
call_command("check")
call_command("makemigrations", "--check", "--dry-run")
from shop.models import Order
with connection.schema_editor() as editor:
    editor.create_model(Order)
try:
    Order.place("nora", "kiln", "I restore kilns in Turin.")
    try:
        Order.place("nora", "", "Forget this.")
    except ValueError:
        pass
    # What the page shows of the project's files does the same.
    for_settings, for_orders = json.loads(sys.argv[1])
    from django.conf import settings
    told = {"INSTALLED_APPS": ["shop"]}
    exec(for_settings, told)
    assert set(told.pop("INSTALLED_APPS")) < set(settings.INSTALLED_APPS)
    assert all(getattr(settings, name) == value for name, value in told["SETTINGS"].items())
    shown = {}
    exec(for_orders, shown)
    shown["place"]("nora", "bench", "I sit by the kiln.")
    print([str(order) for order in Order.objects.all()], Order in admin.site._registry, len(admin.site._registry))
finally:
    with connection.schema_editor() as editor:
        editor.delete_model(Order)
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_host_can_write_memory_in_its_own_transaction_and_keep_its_admin() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", USED, json.dumps(python_in("hosting.md"))],
        cwd=BASE_DIR / "examples/host_project",
        env=environment(DJANGO_SETTINGS_MODULE="settings", PYTHONPATH=str(BASE_DIR)),
        capture_output=True,
        text=True,
    )
    # Its admin has the host's own model and those of Django and django-q2.
    assert ran.stdout.splitlines()[-1] == "['kiln for nora', 'bench for nora'] True 6", ran.stderr
    said = Message.objects.order_by("pk").values_list("content", flat=True)
    assert list(said) == ["I restore kilns in Turin.", "I sit by the kiln."]
