"""Virtual time round the real scheduler: scenarios, arrivals, simulated devices, reports.

It needs nothing beyond the light install: no torch, no pydantic, no event loop.
"""
