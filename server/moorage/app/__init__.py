"""The composition root: builds every room, starts them inside-out, and drains them outside-in."""

from moorage.app.one_model import MeasuredRun, OneModel, serving_one
from moorage.app.running import run
from moorage.app.serving import Server, Started, serving

__all__ = ["MeasuredRun", "OneModel", "Server", "Started", "run", "serving", "serving_one"]
