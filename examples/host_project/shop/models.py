"""Orders. `Order.place` also adds the customer's note to memory, in the same transaction."""

from django.db import models, transaction

from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.transcript.append import NewMessage, append


class Order(models.Model):
    customer = models.CharField(max_length=64)
    item = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.item} for {self.customer}"

    @classmethod
    @transaction.atomic
    def place(cls, customer: str, item: str, note: str) -> "Order":
        """Store an order, and the customer's note in memory. If one fails, neither is stored."""
        order = cls.objects.create(customer=customer, item=item)
        person, _ = UserProfile.objects.get_or_create(application_id=DEFAULT, user_id=customer)
        append(person, f"order-{order.pk}", [NewMessage(role="user", content=note)])
        if not item:
            raise ValueError("Nothing was ordered.")
        return order
