"""How a simulation can fail."""


class SimulationError(Exception):
    """The scheduler broke a promise: it took more memory than there is, or left a request without an outcome."""
