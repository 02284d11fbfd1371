from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.vault import SecretVault
from paceline.errors import WrongSetting

KEY = b"k" * 32
SECRET = "Bearer canary-4711"
VAULT = SecretVault(KEY)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_sealed_value_opens_again_after_a_restart(secret: str) -> None:
    assert SecretVault(KEY).unseal(VAULT.seal(secret)) == secret


def test_the_sealed_text_shows_nothing_of_the_secret_and_names_its_version() -> None:
    sealed = VAULT.seal(SECRET)
    assert sealed.startswith("v1.")
    assert "canary" not in sealed
    assert sealed.isascii()


def test_sealing_the_same_twice_gives_the_same_text_so_an_unchanged_provider_stays_unchanged() -> None:
    assert VAULT.seal(SECRET) == SecretVault(KEY).seal(SECRET)
    assert VAULT.seal(SECRET) != VAULT.seal(SECRET + "2")


def test_wrong_secret_key_opens_no_value_and_the_error_names_the_setting() -> None:
    sealed = VAULT.seal(SECRET)
    with pytest.raises(WrongSetting) as raised:
        SecretVault(b"x" * 32).unseal(sealed)
    assert "PACELINE_SECRET_KEY" in raised.value.detail
    assert "canary" not in raised.value.detail
    assert sealed not in raised.value.detail
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("position", [3, 10, 30])
def test_a_sealed_text_that_was_tampered_with_does_not_open(position: int) -> None:
    sealed = VAULT.seal(SECRET)
    other = "A" if sealed[position] != "A" else "B"
    with pytest.raises(WrongSetting):
        VAULT.unseal(sealed[:position] + other + sealed[position + 1 :])


@pytest.mark.parametrize("text", ["", "plain", "v2.AAAA", "v1.", "v1.AAAA", "v1.not base64!", "v1.ÄÖ"])
def test_value_that_was_never_sealed_does_not_open(text: str) -> None:
    with pytest.raises(WrongSetting):
        VAULT.unseal(text)
