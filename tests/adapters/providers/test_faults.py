"""Reasons of failed transfers."""

from __future__ import annotations

import pycurl
import pytest

from paceline.adapters.providers.authorities import find_authorities
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.guard import AddressGuard
from paceline.adapters.providers.transfer import Transfer


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1", "0x7f000001"])
def test_time_out_at_an_address_is_not_blamed_on_resolving_a_name(host: str) -> None:
    transfer = Transfer(AddressGuard([]), find_authorities(None), [])
    transfer.aim(f"http://{host}:9/", "1s")
    assert transfer.curl.getinfo(pycurl.NAMELOOKUP_TIME) == 0
    assert fault_words(transfer, pycurl.E_OPERATION_TIMEDOUT, timeout="1s") == "timed out after 1s while connecting"


def test_time_out_before_a_name_is_resolved_says_so() -> None:
    transfer = Transfer(AddressGuard([]), find_authorities(None), [])
    transfer.aim("http://example.org/", "1s")
    words = fault_words(transfer, pycurl.E_OPERATION_TIMEDOUT, timeout="1s")
    assert words == "timed out after 1s while resolving the host name"
