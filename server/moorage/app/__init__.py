"""The composition root: builds every room, starts them inside-out, and drains them outside-in."""

from moorage.app.running import run
from moorage.app.serving import Server, Started, serving

__all__ = ["Server", "Started", "run", "serving"]
