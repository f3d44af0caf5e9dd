"""Whether this machine has a card."""

import pynvml
import pytest


@pytest.fixture
def card() -> None:
    """Skips a test where there is no NVIDIA card."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        pytest.skip(f"needs an NVIDIA card: {error}; tests/gpu/README.md says how to run it on one")
    if not count:
        pytest.skip("needs an NVIDIA card, and this machine has none")
