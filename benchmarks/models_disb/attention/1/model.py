"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import Whole


class Attention(Whole):
    """The attention network, a request at a time."""
