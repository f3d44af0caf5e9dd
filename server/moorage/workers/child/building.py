"""From a blueprint to a model that can run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.authoring import ModelContext
from moorage.domain.model import ModelKey
from moorage.domain.tensor import TensorSpec
from moorage.workers.messages import Blueprint, Spec
from moorage.workers.runtimes import Runtime, RuntimeOptions, create_runtime


@dataclass(frozen=True, slots=True)
class Built:
    """A loaded model and what it declared. urgent, decoupled: see Blueprint."""

    runtime: Runtime
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    batched: bool
    device: str
    urgent: bool = False
    decoupled: bool = False


def build(key: ModelKey, blueprint: Blueprint, device: str, apply_cap: Callable[[], None]) -> Built:
    """Create the runtime and load the model, within the process's cap. Raises whatever they raise."""
    inputs = {spec.name: _tensor_spec(spec) for spec in blueprint.inputs}
    outputs = {spec.name: _tensor_spec(spec) for spec in blueprint.outputs}
    options = RuntimeOptions(
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs.values()),
        batched=blueprint.max_batch_size > 0,
        load_s=blueprint.load_s,
        run_s=blueprint.run_s,
        run_s_per_row=blueprint.run_s_per_row,
        declared_weights_bytes=blueprint.declared_weights_bytes,
        restore_s=blueprint.restore_s,
        steps=blueprint.steps,
        state_bytes=blueprint.state_bytes,
        instances=blueprint.instances,
        decoupled=blueprint.decoupled,
    )
    runtime = create_runtime(blueprint.runtime, options)
    apply_cap()  # it may have come before there was a framework to be told
    runtime.load(ModelContext(key.name, key.version, device, Path(blueprint.path), blueprint.parameters))
    return Built(runtime, inputs, outputs, options.batched, device, blueprint.urgent, blueprint.decoupled)


def _tensor_spec(spec: Spec) -> TensorSpec:
    return TensorSpec(
        spec.name, spec.datatype, spec.shape, optional=spec.optional, ragged=spec.ragged, padding=spec.padding
    )
