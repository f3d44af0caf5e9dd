"""Five small networks of unlike kind and cost, for those of DISB: seeded weights, some 4 to 25 ms on one core.

Each is a list of stages, so that the same network is served whole for real-time requests, or a stage at a time where
it is to give way between them. The images of all but one are FP32[3, 128, 128]; `attention` takes 64 tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from moorage import Batch, Model, ModelContext, Step, SteppedModel
from moorage.authoring import StartingRequest

SEED = 7
CLASSES = 10
TOKENS, VOCABULARY, EMBEDDING = 64, 1000, 256
IMAGE = (3, 128, 128)


class Residual(nn.Module):
    """Two convolutions, and what they are added to."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.added = nn.Sequential(
            nn.Conv2d(given, width, 3, stride, 1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        self.kept = nn.Identity() if given == width else nn.Conv2d(given, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.kept(x) + self.added(x))


class Dense(nn.Module):
    """Layers that each see all before them."""

    def __init__(self, given: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv2d(given + number * growth, growth, 3, padding=1) for number in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, torch.relu(layer(x))], dim=1)
        return x


class Inception(nn.Module):
    """Four branches side by side, each a quarter of the width."""

    def __init__(self, given: int, width: int) -> None:
        super().__init__()
        quarter = width // 4
        self.branches = nn.ModuleList(
            [
                nn.Conv2d(given, quarter, 1),
                nn.Sequential(nn.Conv2d(given, quarter, 1), nn.ReLU(), nn.Conv2d(quarter, quarter, 3, padding=1)),
                nn.Sequential(nn.Conv2d(given, quarter, 1), nn.ReLU(), nn.Conv2d(quarter, quarter, 5, padding=2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(given, quarter, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([branch(x) for branch in self.branches], dim=1))


def _stem(width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def _head(width: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


def _plain_stage(given: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(given, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()
    )


def _residual() -> list[nn.Module]:
    stages = [_stem(48)]
    for given, width, stride in ((48, 48, 1), (48, 96, 2), (96, 192, 2), (192, 384, 2)):
        stages += [Residual(given, width, stride), Residual(width, width, 1)]
    return [*stages, _head(384)]


def _plain() -> list[nn.Module]:
    widths = (24, 48, 96, 192)
    stages = [_plain_stage(given, width) for given, width in zip((3, *widths), widths, strict=False)]
    pooled: list[nn.Module] = [nn.Sequential(stage, nn.MaxPool2d(2)) for stage in stages]
    return [*pooled, _plain_stage(192, 192), _head(192)]


def _dense() -> list[nn.Module]:
    def narrowed(given: int, width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(given, width, 1), nn.AvgPool2d(2))

    blocks = [Dense(24, 12, 6), narrowed(96, 48), Dense(48, 12, 6), narrowed(120, 60), Dense(60, 12, 6)]
    return [_stem(24), *blocks, _head(132)]


def _inception() -> list[nn.Module]:
    pool = nn.MaxPool2d(2)
    return [_stem(32), Inception(32, 64), Inception(64, 96), nn.Sequential(pool, Inception(96, 128)), _head(128)]


def _attention() -> list[nn.Module]:
    layers = [nn.TransformerEncoderLayer(EMBEDDING, 4, 4 * EMBEDDING, dropout=0.0, batch_first=True) for _ in range(6)]
    answer = nn.Sequential(nn.Flatten(), nn.Linear(TOKENS * EMBEDDING, CLASSES))
    return [nn.Embedding(VOCABULARY, EMBEDDING), *layers, answer]


_KINDS: Mapping[str, Callable[[], list[nn.Module]]] = {
    "residual": _residual,
    "plain": _plain,
    "dense": _dense,
    "inception": _inception,
    "attention": _attention,
}
NETWORKS = tuple(_KINDS)


def build(network: str) -> list[nn.Module]:
    """The stages of a network, the same ones every time. Torch uses one thread from now on in this process."""
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return [stage.eval() for stage in _KINDS[network]()]


def example(network: str) -> Tensor:
    """One row of input."""
    generator = torch.Generator().manual_seed(SEED)
    if network == "attention":
        return torch.randint(VOCABULARY, (1, TOKENS), generator=generator)
    return torch.rand(1, *IMAGE, generator=generator)


class Whole(Model):
    """A request is one run, which nothing interrupts. INPUT0 -> OUTPUT0 FP32[rows, 10]."""

    stages: nn.ModuleList

    def load(self, context: ModelContext) -> None:
        self.stages = nn.ModuleList(build(context.parameters["network"])).to(context.device)

    def infer(self, inputs: Mapping[str, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        hidden = inputs["INPUT0"]
        for stage in self.stages:
            hidden = stage(hidden)
        return {"OUTPUT0": hidden}


@dataclass
class Progress:
    """Of one request: what the stages before `stage` made of its input."""

    hidden: Tensor
    stage: int = 0


class InSteps(SteppedModel):
    """A stage is a step, after which another model may go first. INPUT0 -> OUTPUT0 FP32[rows, 10]."""

    stages: nn.ModuleList

    def load(self, context: ModelContext) -> None:
        self.stages = nn.ModuleList(build(context.parameters["network"])).to(context.device)

    def start(self, inputs: Mapping[str, Any], request: StartingRequest) -> Progress:
        return Progress(inputs["INPUT0"])

    def step(self, states: Sequence[Progress]) -> Sequence[Step]:
        return [self._advance(state) for state in states]

    def _advance(self, state: Progress) -> Step:
        state.hidden = self.stages[state.stage](state.hidden)
        state.stage += 1
        if state.stage < len(self.stages):
            return Step()
        return Step(outputs={"OUTPUT0": state.hidden}, done=True)
