"""Real models to serve, and a demo that asks them."""
