"""What is answered over HTTP: whether the server lives, and whether it is ready."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from moorage.engine.snapshot import ModelSnapshot, ServerSnapshot


def application(view: Callable[[], ServerSnapshot]) -> Starlette:
    """The ASGI application over `view`, which must be quick: it is called in the event loop for every request."""

    async def healthz(_request: Request) -> Response:
        """The process serves. Draining or not: to restart it for that would lose accepted work."""
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        """The server takes work; if not, why."""
        snapshot = view()
        return JSONResponse(readiness(snapshot), status_code=200 if snapshot.ready else 503)

    return Starlette(
        routes=[
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ]
    )


def readiness(snapshot: ServerSnapshot) -> dict[str, object]:
    """Whether the server is ready, and everything in it that is not."""
    return {
        "ready": snapshot.ready,
        "draining": snapshot.draining,
        "not_ready": [_unready(model) for model in snapshot.models if not model.ready],
        "broken": [{"name": model.name, "reason": model.reason} for model in snapshot.broken],
    }


def _unready(model: ModelSnapshot) -> dict[str, object]:
    return {
        "name": model.key.name,
        "version": model.key.version,
        "state": model.state.value,
        "reason": model.reason,
    }
