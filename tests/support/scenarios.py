"""Scenarios for tests: small ones, written as their files are."""

import tomllib
from pathlib import Path

from moorage.simulation.loading import parse_scenario
from moorage.simulation.scenario import Scenario

SMALL = """
seed = 5
requests = 400

[[devices]]
name = "cuda"
count = 2
capacity = "10 GB"
context = "500 MB"
host_capacity = "40 GB"
host_to_device_per_s = "10 GB"
device_to_host_per_s = "10 GB"

[[models]]
name = "model"
count = 8
weights = { least = "1 GB", most = "6 GB" }
run_s = 0.02
run_s_per_row = 0.005
workspace = "100 MB"
workspace_per_row = "50 MB"
max_batch_size = 4

[[models]]
name = "stepped"
weights = "2 GB"
run_s = 0.02
steps = 5
state = "200 MB"
max_batch_size = 4
priority = 4

[[arrivals]]
models = ["model"]
pattern = "poisson"
rate_per_s = 8
rows = [1, 2]
deadline_s = 5
priority = { 1 = 0.2, 3 = 0.8 }
popularity = { zipf = 1.0, shift_every_requests = 100, shift_share = 0.5 }

[[arrivals]]
models = ["stepped"]
pattern = "closed_loop"
clients = 3
think_s = 0.5
"""


def scenario(text: str = SMALL, folder: Path = Path()) -> Scenario:
    return parse_scenario(tomllib.loads(text), "test", folder)
