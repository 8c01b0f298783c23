"""Who did something, in templates whose rows have the names of keys beside them."""

from django import template

from sessions_app.actors import named_actor

register = template.Library()
register.filter("named_actor", named_actor)
