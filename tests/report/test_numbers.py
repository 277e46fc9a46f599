"""Numbers as people read them."""

from __future__ import annotations

import pytest

from beamsearch.report.numbers import over


@pytest.mark.parametrize(
    ("speedup", "told"),
    [
        (1.362, "~1.36x over eager"),
        (0.997, "~1.00x over eager"),  # as near as two digits tell
        (0.99, "~1.01x slower than eager"),
        (0.685, "~1.46x slower than eager"),
    ],
)
def test_what_is_slower_is_called_so(speedup, told):
    assert over(speedup, "eager", "~") == told
