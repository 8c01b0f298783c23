"""Actors in words, for templates. Where rows have the names of keys beside them, these are an argument."""

from django import template

from sessions_app.actors import named_actor

register = template.Library()
register.filter("named_actor", named_actor)
