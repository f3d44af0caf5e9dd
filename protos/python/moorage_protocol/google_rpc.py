"""Every message of the proto package `google.rpc`, of our private pool."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage_protocol.google_rpc_status_pb2 import *  # noqa: F403 (stubs, made by the build)
else:
    from moorage_protocol.pool import namespace

    globals().update(namespace("google.rpc"))
    del namespace
