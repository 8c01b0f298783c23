"""Actors in templates whose rows include the names of keys."""

from django import template

from sessions_app.actors import named_actor

register = template.Library()
register.filter("named_actor", named_actor)
