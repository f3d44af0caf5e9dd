"""Every message and enum of the proto package `inference`; nested ones are reached through their parents.

`DataType.ValueType` and its like exist for type checkers only: quote them, or postpone annotations.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage_protocol.inference_grpc_service_pb2 import *  # noqa: F403 (stubs, made by the build)
    from moorage_protocol.inference_model_config_pb2 import *  # noqa: F403 (stubs, made by the build)
else:
    from moorage_protocol.pool import namespace

    globals().update(namespace("inference"))
    del namespace
