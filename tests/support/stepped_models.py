"""Stepped models for tests. All take `x` FP32[rows, n] and answer `y` FP32[rows, n], and take n steps for it."""

from textwrap import dedent

# Where a state's tensors hide, and parameters by which a request asks for trouble.
RUNNING = """
    import os
    from dataclasses import dataclass, field
    from typing import Any

    import torch
    from moorage import Step, SteppedModel

    @dataclass
    class Hidden:
        total: Any

    @dataclass(slots=True)
    class State:
        x: Any
        found: list
        nested: dict
        parameters: dict
        rows: int
        position: int = 0

    class Running(SteppedModel):
        \"\"\"y is what has been added up so far, fading: total = tanh(total * weight + x).\"\"\"

        def load(self, context):
            self.weight = torch.tensor([0.9], device=context.device)

        def start(self, inputs, request):
            if request.parameters.get("trouble") == "start":
                raise ValueError("secret detail of a start")
            assert request.shapes["x"] == tuple(inputs["x"].shape)
            nested = {"weight": self.weight, "hidden": (Hidden(inputs["x"].new_zeros(request.rows)),)}
            mib = request.parameters.get("ballast_mib", 0)
            generator = torch.Generator().manual_seed(7)
            nested["ballast"] = [torch.rand(2**18, generator=generator) for _ in range(mib)]
            return State(inputs["x"], [], nested, dict(request.parameters), request.rows)

        def step(self, states):
            if any(state.parameters.get("trouble") == "step" and state.position == 1 for state in states):
                raise RuntimeError("secret detail of a step")
            if any(state.parameters.get("trouble") == "memory" for state in states):
                raise MemoryError
            columns = torch.cat([state.x[:, state.position] for state in states])
            before = torch.cat([state.nested["hidden"][0].total for state in states])
            after = torch.tanh(before * self.weight + columns)
            for state, total in zip(states, after.split([state.rows for state in states])):
                state.nested["hidden"][0].total = total  # a view of the whole batch's
                state.found.append(total)
                state.position += 1
            steps = [self.outcome(state) for state in states]
            if any(state.parameters.get("trouble") == "count" for state in states):
                return steps[1:]
            if any(state.parameters.get("trouble") == "kind" for state in states):
                return [{"y": 1} for _ in states]
            return steps

        def outcome(self, state):
            trouble = state.parameters.get("trouble")
            done = state.position == state.x.shape[1]
            if trouble == "no outputs" and done:
                return Step(done=True)
            if trouble == "early outputs" and not done:
                return Step({"z": "looked at by nobody"})
            if not done:
                return Step()
            y = torch.stack(state.found, dim=1)
            for ballast in state.nested["ballast"]:
                y = y + ballast.double().sum().float()
            return Step({"y": y.double() if trouble == "datatype" else y}, done=True)
"""

# Keeps its state as bytes while it is suspended, unless the request wants it not to work.
CUSTOM = """
    import torch
    from moorage import Step, SteppedModel

    class Custom(SteppedModel):
        def start(self, inputs, request):
            return {"x": inputs["x"], "moves": 0, "position": 0, "trouble": request.parameters.get("trouble")}

        def step(self, states):
            steps = []
            for state in states:
                assert isinstance(state["x"], torch.Tensor)
                state["position"] += 1
                done = state["position"] == state["x"].shape[1]
                steps.append(Step({"y": state["x"] + state["moves"]}, done=True) if done else Step())
            return steps

        def state_bytes(self, state):
            return -1 if state["trouble"] == "negative" else 1000 + state["moves"]

        def suspend(self, state):
            if state["trouble"] == "suspend":
                raise OSError("no room")
            return {**state, "x": state["x"].tolist(), "moves": state["moves"] + 1}

        def resume(self, state):
            if state["trouble"] == "resume":
                raise MemoryError("no room")
            return {**state, "x": torch.tensor(state["x"])}
"""

HALF_A_PAIR = """
    from moorage import SteppedModel

    class Half(SteppedModel):
        def start(self, inputs, request):
            return None

        def step(self, states):
            return []

        def suspend(self, state):
            return state
"""

NO_START = """
    from moorage import SteppedModel

    class NoStart(SteppedModel):
        def step(self, states):
            return []
"""


def code_of(text: str) -> str:
    """The body of a model.py."""
    return dedent(text)
