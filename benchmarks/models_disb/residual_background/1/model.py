"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import InSteps


class Residual(InSteps):
    """The residual network, a stage at a time."""
