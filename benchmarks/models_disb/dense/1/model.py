"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import Whole


class Dense(Whole):
    """The dense network, a request at a time."""
