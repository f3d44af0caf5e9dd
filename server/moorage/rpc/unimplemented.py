"""Extensions that this server does not have, so that their clients hear so, and can still clean up."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from moorage.domain.errors import NotSupported
from moorage_protocol import inference as pb

_NO_SHARED_MEMORY = "this server has no shared-memory extension"

Handler = Callable[[Any], Awaitable[Message]]


async def _system_status(_: pb.SystemSharedMemoryStatusRequest) -> pb.SystemSharedMemoryStatusResponse:
    return pb.SystemSharedMemoryStatusResponse()


async def _system_unregister(_: pb.SystemSharedMemoryUnregisterRequest) -> pb.SystemSharedMemoryUnregisterResponse:
    return pb.SystemSharedMemoryUnregisterResponse()


async def _cuda_status(_: pb.CudaSharedMemoryStatusRequest) -> pb.CudaSharedMemoryStatusResponse:
    return pb.CudaSharedMemoryStatusResponse()


async def _cuda_unregister(_: pb.CudaSharedMemoryUnregisterRequest) -> pb.CudaSharedMemoryUnregisterResponse:
    return pb.CudaSharedMemoryUnregisterResponse()


def _refusing(message: str) -> Handler:
    async def refuse(_: Message) -> Message:
        raise NotSupported(message)

    return refuse


HANDLERS: dict[str, Handler] = {
    "SystemSharedMemoryStatus": _system_status,
    "SystemSharedMemoryRegister": _refusing(_NO_SHARED_MEMORY),
    "SystemSharedMemoryUnregister": _system_unregister,
    "CudaSharedMemoryStatus": _cuda_status,
    "CudaSharedMemoryRegister": _refusing(_NO_SHARED_MEMORY),
    "CudaSharedMemoryUnregister": _cuda_unregister,
    "TraceSetting": _refusing("this server has no trace extension"),
    "LogSettings": _refusing("this server has no logging extension"),
}
"""By the method's name. No region is ever registered, so there is none to tell of and none left after unregistering."""
