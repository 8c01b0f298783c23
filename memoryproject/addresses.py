"""The address that somebody asks from: wrong passwords count by it, and so do calls without a right key."""

import ipaddress

from django.conf import settings

NETWORK_BITS = 64  # of an IPv6 address: one subscriber has all that begin with them


def client_address(peer: str, forwarded: str) -> str:
    """Return the address of whoever asks; behind a proxy the one that the proxy saw, which nobody can make up.

    Args:
        peer: of the connection.
        forwarded: the header `X-Forwarded-For`; blank where there is none.
    """
    last = forwarded.rpartition(",")[2].strip()
    return last if last and settings.BEHIND_PROXY else peer


def subscriber(address: str) -> str:
    """Return what one subscriber has: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a socket of this machine has none
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(found), NETWORK_BITS), strict=False))
