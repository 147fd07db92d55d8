"""Which of this machine's addresses media go over."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import aioice.ice
import ifaddr

LOOPBACK = "127.0.0.1"
_ANY = ("0.0.0.0", "::", "")


def media_addresses(host: str, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The addresses for media of a server that listens on `host`.

    Args:
        host: Where HTTP listens.
        chosen: What the user has chosen; decides if not empty.
    """
    if chosen:
        return tuple(chosen)
    if host in _ANY:
        found = (ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str))
        return tuple(dict.fromkeys([*found, LOOPBACK]))
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return (LOOPBACK,)  # a name such as localhost


def offer_only(addresses: Sequence[str]) -> None:
    """Have every peer of this process listen on these addresses and no other.

    aioice takes all addresses of the machine but loopback, and has no setting for it.
    """

    def get_host_addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        return [each for each in addresses if (use_ipv6 if ":" in each else use_ipv4)]

    aioice.ice.get_host_addresses = get_host_addresses
