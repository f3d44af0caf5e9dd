"""Moorage: many models, one GPU's memory.

The public names of the package. Importing it loads no framework, no gRPC and no server.
"""

from moorage.authoring import Batch, BatchMember, InvalidInput, Model, ModelContext, Step, SteppedModel, TensorSpec

__all__ = [
    "Batch",
    "BatchMember",
    "InvalidInput",
    "Model",
    "ModelContext",
    "Step",
    "SteppedModel",
    "TensorSpec",
    "__version__",
]

__version__ = "0.1.0"
