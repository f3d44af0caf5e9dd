"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import Whole


class Inception(Whole):
    """The inception network, a request at a time."""
