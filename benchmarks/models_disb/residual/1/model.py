"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import Whole


class Residual(Whole):
    """The residual network, a request at a time."""
