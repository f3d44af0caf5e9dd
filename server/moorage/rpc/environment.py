"""What gRPC reads from the environment, once, as it is imported. So this comes before anything that imports it."""

import os

_VARIABLES = {
    # The event engine's listener costs a server under asyncio 1.14x per small request, against the polling one.
    "GRPC_EXPERIMENTS": "-event_engine_listener",
    # Workers are started with exec. Fork handlers would only stop every gRPC thread for each of them.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


def prepare_grpc() -> None:
    """Set the variables that the user has not set. Without effect once grpc has been imported."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
