"""Requests to a site on this machine, which ignore the proxies in the environment."""

from urllib.request import ProxyHandler, build_opener

open_url = build_opener(ProxyHandler({})).open
