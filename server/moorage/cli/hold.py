"""`moorage hold`: memory of a device for a process that is no model of the server."""

import json
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.remote import DEFAULT_TARGET, AsJson, Priority, Target, above_zero, connected
from moorage.cli.sizes import format_bytes, parse_size
from moorage.cli.terminal import fail

if TYPE_CHECKING:
    from moorage_client import SyncHold


def hold(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Such as cuda:0.")],
    size: Annotated[str, typer.Argument(metavar="SIZE", help="Such as 2GiB.")],
    priority: Priority = 0,
    max_wait_s: Annotated[
        float, typer.Option("--max-wait", metavar="SECONDS", callback=above_zero, help="How long to wait for it.")
    ] = 30.0,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Take memory out of a device's budget until Ctrl-C or SIGTERM; prints a line once it is granted.

    The server evicts idle models for it where it must. However this process ends, the memory is free again. Exits
    with 0 after either signal, and with 1 where it is not granted, or lost.
    """
    # A script starts what it puts in the background with SIGINT ignored: there, nothing would end it but a kill.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    size_bytes = parse_size("SIZE", size)
    granted = False
    try:
        with (
            connected(target) as client,
            client.hold(device, size_bytes, priority=priority, max_wait_s=max_wait_s) as held,
        ):
            granted = True
            _tell(held, as_json=as_json)
            error = held.wait_until_lost()
    except KeyboardInterrupt:
        if granted:
            return
        raise
    fail(f"the hold is lost: {error.code}: {error.message}")


def _tell(held: "SyncHold", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"device": held.device, "size_bytes": held.size_bytes}))
    else:
        typer.echo(f"holding {format_bytes(held.size_bytes)} of {held.device} until Ctrl-C or SIGTERM")
