"""Clients of Moorage, or of any server of the Open Inference Protocol, over gRPC: NumPy in, NumPy out.

>>> with SyncClient("127.0.0.1:8001") as client:                                          # doctest: +SKIP
...     outputs = client.infer("embedder", {"text": [["a sentence"], ["another"]]})
...     outputs["embedding"].shape
(2, 384)

`Client` is the same for asyncio.
"""

from moorage_client.admin import Hold
from moorage_client.aio import Client
from moorage_client.batch_messages import (
    BatchCounts,
    BatchInfo,
    BatchItem,
    BatchOptions,
    BatchProgress,
    BatchResult,
    BatchState,
)
from moorage_client.batches import Batch
from moorage_client.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidRequest,
    InvalidResponse,
    ModelNotFound,
    MoorageClientError,
    NotSupported,
    Overloaded,
    PermissionDenied,
    ServerFailure,
    Unauthenticated,
    Unavailable,
)
from moorage_client.holders import Holder
from moorage_client.messages import ModelInfo, ModelMetadata, ServerMetadata, TensorMetadata
from moorage_client.status import (
    BrokenModel,
    DeviceStatus,
    Explanation,
    ModelPolicy,
    ModelStatus,
    ResidencyCounts,
    RunEstimate,
    Snapshot,
    Understudy,
)
from moorage_client.sync import SyncClient, SyncHold
from moorage_client.sync_batches import SyncBatch
from moorage_client.tensors import BFloat16, datatype_of, dtype_of

__all__ = [
    "Aborted",
    "AlreadyExists",
    "BFloat16",
    "Batch",
    "BatchCounts",
    "BatchInfo",
    "BatchItem",
    "BatchOptions",
    "BatchProgress",
    "BatchResult",
    "BatchState",
    "BrokenModel",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "DeviceStatus",
    "Explanation",
    "FailedPrecondition",
    "Hold",
    "Holder",
    "InvalidRequest",
    "InvalidResponse",
    "ModelInfo",
    "ModelMetadata",
    "ModelNotFound",
    "ModelPolicy",
    "ModelStatus",
    "MoorageClientError",
    "NotSupported",
    "Overloaded",
    "PermissionDenied",
    "ResidencyCounts",
    "RunEstimate",
    "ServerFailure",
    "ServerMetadata",
    "Snapshot",
    "SyncBatch",
    "SyncClient",
    "SyncHold",
    "TensorMetadata",
    "Unauthenticated",
    "Unavailable",
    "Understudy",
    "datatype_of",
    "dtype_of",
]
