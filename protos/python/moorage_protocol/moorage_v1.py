"""Every message and enum of the proto package `moorage.v1`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage_protocol.moorage_v1_admin_pb2 import *  # noqa: F403 (stubs, made by the build)
    from moorage_protocol.moorage_v1_batch_pb2 import *  # noqa: F403
else:
    from moorage_protocol.pool import namespace

    globals().update(namespace("moorage.v1"))
    del namespace
