"""See benchmarks/disb_networks.py, which is on the path of the server that serves this."""

from benchmarks.disb_networks import InSteps


class Plain(InSteps):
    """The plain network, a stage at a time."""
