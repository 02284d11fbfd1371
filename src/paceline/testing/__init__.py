"""Paceline in your own tests: the real engine and the real API in memory, on a clock that you move.

>>> from paceline.testing import Answer, VirtualPaceline
>>> with VirtualPaceline() as p:
...     _ = p.client.monitors.put("home", check={"kind": "http", "url": "https://example.org/"}, every="60s")
...     p.answers = lambda request: Answer(status=503)
...     p.advance("1h")
...     p.client.monitors.get("home").health
'failing'
"""

from paceline.testing.outside import Answer, OutsideRequest
from paceline.testing.virtual import VirtualPaceline

__all__ = ["Answer", "OutsideRequest", "VirtualPaceline"]
