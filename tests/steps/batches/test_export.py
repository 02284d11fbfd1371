"""Cells of CSV exports."""

from __future__ import annotations

import pytest

from paceline.steps.batches.export import safe_cell


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_text_that_a_spreadsheet_would_compute_gets_an_apostrophe(sign: str) -> None:
    assert safe_cell(f"{sign}1+1") == f"'{sign}1+1"
    assert safe_cell(f"1{sign}1") == f"1{sign}1"
