"""The read-only HTTP side: /healthz and /readyz."""

from moorage.web.server import HttpServer

__all__ = ["HttpServer"]
