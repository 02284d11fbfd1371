"""The command line: parse, call one step, render."""

from paceline.shells.cli.app import main

__all__ = ["main"]
