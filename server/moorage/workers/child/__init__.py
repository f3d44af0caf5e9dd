"""What runs inside a worker process. `python -m moorage.workers.child` is its entry; only the server starts it."""
