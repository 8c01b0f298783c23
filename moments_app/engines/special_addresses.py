"""Addresses that are not part of the public internet, after IANA's special-purpose registries.

Python's `ipaddress` has only some of these networks, and they differ by Python version. This list is complete.
Sources: https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# Entries that are not globally reachable. IANA's exceptions within a network, such as anycast addresses of NAT and
# TURN servers, are not listed: webhooks are never received there.
SPECIAL_NETWORKS = {
    ip_network(network): name
    for network, name in {
        "0.0.0.0/8": "this network",
        "10.0.0.0/8": "private use",
        "100.64.0.0/10": "shared address space",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "Azure's virtual machine host, which IANA doesn't list",
        "169.254.0.0/16": "link local",
        "172.16.0.0/12": "private use",
        "192.0.0.0/24": "IETF protocol assignments",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "6to4 relay anycast, deprecated",
        "192.168.0.0/16": "private use",
        "198.18.0.0/15": "benchmarking",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved, with the limited broadcast address",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "64:ff9b:1::/48": "local-use NAT64",
        "100::/64": "discard only",
        "100:0:0:1::/64": "dummy prefix",
        "2001::/23": "IETF protocol assignments",
        "2001:db8::/32": "documentation",
        "3fff::/20": "documentation",
        "5f00::/16": "segment routing",
        "fc00::/7": "unique local",
        "fe80::/10": "link local",
        "fec0::/10": "site local, deprecated",
        "ff00::/8": "multicast",
    }.items()
}
# Networks whose addresses end with the IPv4 address that packets are routed to.
ENDS_WITH_IPV4 = {
    ip_network(network): name
    for network, name in {
        "::/96": "IPv4-compatible, deprecated",
        "::ffff:0:0/96": "IPv4-mapped",
        "::ffff:0:0:0/96": "IPv4-translated",
        "64:ff9b::/96": "NAT64",
    }.items()
}


def is_public(address: str) -> bool:
    """Return whether an address is part of the public internet.

    An IPv6 address that embeds IPv4 addresses is public if each of them is.

    Args:
        address: An IPv4 or IPv6 address; a zone is ignored.
    """
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and (embedded := _embedded(parsed)):
        return all(_is_ordinary(one) for one in embedded)
    return _is_ordinary(parsed)


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    if address.teredo:  # the server and the client
        return address.teredo
    if address.sixtofour:
        return (address.sixtofour,)
    if any(address in network for network in ENDS_WITH_IPV4):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


def _is_ordinary(address: IPv4Address | IPv6Address) -> bool:
    is_special = any(address in network for network in SPECIAL_NETWORKS)
    return address.is_global and not address.is_reserved and not is_special
