"""A Django project of somebody else's that has the apps: `examples/host_project`, on the test's database."""

import subprocess
import sys

import pytest

from memoryproject.conf import BASE_DIR
from sessions_app.models import Message
from tests.support.processes import environment

USED = """
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
    print([str(order) for order in Order.objects.all()], Order in admin.site._registry, len(admin.site._registry))
finally:
    with connection.schema_editor() as editor:
        editor.delete_model(Order)
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_host_writes_to_memory_in_its_own_transaction_and_keeps_its_admin() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=BASE_DIR / "examples/host_project",
        env=environment(DJANGO_SETTINGS_MODULE="settings", PYTHONPATH=str(BASE_DIR)),
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines()[-1] == "['kiln for nora'] True 7", ran.stderr  # its own, Django's and the queue's
    assert list(Message.objects.values_list("content", flat=True)) == ["I restore kilns in Turin."]
