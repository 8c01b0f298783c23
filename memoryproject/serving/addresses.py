"""The client's IP address. Wrong passwords and unauthenticated calls are counted by it."""

import ipaddress

from django.conf import settings

NETWORK_BITS = 64  # of an IPv6 address; a subscriber has all addresses with this prefix


def client_address(peer: str, forwarded: str) -> str:
    """Return the client's IP address. Behind a proxy, use the last `X-Forwarded-For` entry, which clients can't forge.

    Args:
        peer: The address of the connection's peer.
        forwarded: The header `X-Forwarded-For`, or a blank string.
    """
    last = forwarded.rpartition(",")[2].strip()
    return last if last and settings.BEHIND_PROXY else peer


def subscriber(address: str) -> str:
    """Return the address range of one subscriber: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket has no address
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    mapped = found.ipv4_mapped
    return str(mapped or ipaddress.ip_network((int(found), NETWORK_BITS), strict=False))
