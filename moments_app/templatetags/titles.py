"""`title_of`: the title of a process or of a purpose of model calls."""

from django import template

from moments_app.models.job import title_of

register = template.Library()
register.filter("title_of", title_of)
