"""Messages and methods of the protocol, for client and server alike.

The classes live in a descriptor pool of their own, so that this package, tritonclient and KServe, which all declare
the package `inference`, can be imported into one process in any order.

    from moorage_protocol import inference as pb
    request = pb.ModelInferRequest(model_name="identity")
"""

from moorage_protocol.pool import POOL

__all__ = ["POOL"]
