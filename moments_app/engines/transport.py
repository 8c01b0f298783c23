"""An HTTP transport for untrusted endpoints: each call has a deadline and a maximum number of bytes.

The timeouts of an HTTP client apply to each wait separately, so an endpoint that sends a byte now and then can keep a
call open forever. In this transport, a wait lasts at most until the deadline, and every received byte is counted.

A call can be limited to the public internet. Python's `ipaddress` lists only some of the non-public networks, depending
on the Python version. The list in this module contains all networks in IANA's special-purpose registries:
https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry.
"""

import socket
import ssl
import time
from collections.abc import Iterable
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import httpcore2
import httpx2

_WRITE_BYTES = 65_536  # maximum bytes per write, so that the deadline is checked while a slow receiver reads
# Networks that are not globally reachable. IANA lists exceptions within some of them, such as anycast addresses of NAT
# and TURN servers. This list ignores the exceptions, because no receiver of webhooks has such an address.
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
# IPv6 networks whose addresses end with an IPv4 address, which receives the packets.
ENDS_WITH_IPV4 = {
    ip_network(network): name
    for network, name in {
        "::/96": "IPv4-compatible, deprecated",
        "::ffff:0:0/96": "IPv4-mapped",
        "::ffff:0:0:0/96": "IPv4-translated",
        "64:ff9b::/96": "NAT64",
    }.items()
}


class TooLarge(Exception):
    """The response exceeds the size limit of the call."""


class NotPublic(Exception):
    """The host has no public address."""


class BoundedTransport(httpx2.HTTPTransport):
    """An HTTP transport for one call.

    Args:
        timeout: seconds until the whole response must be received.
        max_bytes: the maximum size of the response, including headers.
        public_only: connect only to addresses of the public internet.
    """

    def __init__(self, *, timeout: float, max_bytes: int, public_only: bool = False) -> None:
        # `HTTPTransport.__init__` has no parameter for the network backend, so create its connection pool here.
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls(), network_backend=_BoundedBackend(_Budget(timeout, max_bytes), public_only)
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        # Request and accept only uncompressed data, because a compressed megabyte may expand to a gigabyte.
        request.headers["Accept-Encoding"] = "identity"
        response = super().handle_request(request)
        response.headers.pop("Content-Encoding", None)
        return response


@cache
def tls() -> ssl.SSLContext:
    """Return the process's TLS context. It is cached, because loading the certificates takes longer than many calls."""
    return httpx2.create_ssl_context()


class _Budget:
    def __init__(self, timeout: float, max_bytes: int) -> None:
        self._deadline = time.monotonic() + timeout
        self._bytes_left = max_bytes

    def seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("the deadline has passed")
        return left

    def count_received(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise TooLarge


class _BoundedBackend(httpcore2.SyncBackend):
    def __init__(self, budget: _Budget, public_only: bool) -> None:
        self._budget, self._public_only = budget, public_only

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Try the host's addresses in turn, each with a share of the remaining time.

        The name is resolved once, so the connection goes to the address that was checked.
        """
        addresses = [one for one in _addresses(host, port) if not self._public_only or is_public(one)]
        failure: Exception = NotPublic()
        for number, address in enumerate(addresses):
            share = self._budget.seconds_left() / (len(addresses) - number)
            try:
                stream = super().connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return _BoundedStream(stream, self._budget)
        raise failure


def _addresses(host: str, port: int) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError("the host's name can't be resolved") from error


class _BoundedStream(httpcore2.NetworkStream):
    """A connection with the deadline of a budget instead of its caller's timeouts."""

    def __init__(self, stream: httpcore2.NetworkStream, budget: _Budget) -> None:
        self._stream, self._budget = stream, budget

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._budget.seconds_left())
        self._budget.count_received(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], self._budget.seconds_left())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._budget.seconds_left())
        return _BoundedStream(secured, self._budget)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def is_public(address: str) -> bool:
    """Return whether an address is public. If it embeds IPv4 addresses, all of them must be public."""
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and (embedded := _embedded(parsed)):
        return all(_is_ordinary(one) for one in embedded)
    return _is_ordinary(parsed)


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    if address.teredo:  # its two addresses are those of the server and the client
        return address.teredo
    if address.sixtofour:
        return (address.sixtofour,)
    if any(address in network for network in ENDS_WITH_IPV4):
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


def _is_ordinary(address: IPv4Address | IPv6Address) -> bool:
    is_special = any(address in network for network in SPECIAL_NETWORKS)
    return address.is_global and not address.is_reserved and not is_special
