"""Paceline runs work against services you do not own: evenly, in order, once, within budget."""

__version__ = "0.1.0"
