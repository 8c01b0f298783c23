"""Actors in words, for templates. The name of an actor's key is an argument."""

from django import template

from sessions_app.models.event import named_actor

register = template.Library()
register.filter("named_actor", named_actor)
