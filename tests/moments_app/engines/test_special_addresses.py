"""Which addresses belong to the public internet."""

from ipaddress import IPv4Network, IPv6Network

import pytest

from moments_app.engines.transport import SPECIAL_NETWORKS, is_public

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "168.63.129.15",
    "172.32.0.1",
    "192.31.196.1",  # AS112, which IANA lists as globally reachable
    "2606:2800:220:1::1",
    "2a00:1450:4001:800::200e",
    "::ffff:8.8.8.8",
    "::8.8.8.8",
    "::ffff:0:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "2001:0:808:808::f7f7:f7f7",  # Teredo: server and client are 8.8.8.8
]
NOT_PUBLIC = [
    "0.0.0.0",
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.192",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:168.63.129.16",
    "::ffff:0:127.0.0.1",
    "::ffff:0:10.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1",
    "64:ff9b:1:a00:0:100::",  # 10.0.0.1 after a prefix of 48 bits
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "100:0:0:1::1",
    "2001:0:808:808::80ff:fffe",  # Teredo: the client is 127.0.0.1
    "2001:0:7f00:1::f7f7:f7f7",  # Teredo: the server is 127.0.0.1
    "2001:2::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::1",  # 6to4: 127.0.0.1
    "2002:a00:1::1",  # 6to4: 10.0.0.1
    "2002:a9fe:a9fe::1",  # 6to4: 169.254.169.254
    "3fff::1",
    "4000::1",  # not assigned
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "feff::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_row_20_an_internet_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_row_20_a_special_purpose_address_is_not_public_in_any_notation(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("network", SPECIAL_NETWORKS, ids=str)
def test_row_20_the_first_and_last_address_of_a_special_purpose_network_are_not_public(
    network: IPv4Network | IPv6Network,
) -> None:
    assert not is_public(str(network[0]))
    assert not is_public(str(network[-1]))
