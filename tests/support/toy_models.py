"""The toy models of failure trials, written into a repository. All are runtime = "python"."""

from pathlib import Path
from textwrap import dedent

ITEM = """
[[{kind}]]
name = "{name}"
datatype = "{datatype}"
shape = {shape}
"""


def write_python_model(
    root: Path,
    name: str,
    code: str,
    *,
    datatype: str = "FP32",
    shape: str = "[4]",
    max_batch_size: int = 8,
    extra: str = "",
    top: str = "",
    version: int = 1,
) -> Path:
    """A model with input `x` and output `y` of one datatype and shape; its folder.

    code: the body of model.py. top: more top-level keys. extra: more tables of model.toml.
    """
    folder = root / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    tensors = "".join(
        ITEM.format(kind=kind, name=item, datatype=datatype, shape=shape)
        for kind, item in (("inputs", "x"), ("outputs", "y"))
    )
    manifest = f'runtime = "python"\nmax_batch_size = {max_batch_size}\n{dedent(top)}\n{tensors}\n{dedent(extra)}'
    (folder / "model.toml").write_text(manifest)
    (folder / str(version) / "model.py").write_text(dedent(code))
    return folder


ECHO = """
    from moorage import Model

    class Echo(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"]}
"""

# Holds its worker's lane for parameters.delay_s, or for the request's own parameter delay_ms.
SLOW = """
    import time
    from moorage import Model

    class Slow(Model):
        def load(self, context):
            self.delay_s = context.parameters.get("delay_s", 0.0)

        def infer(self, inputs, batch):
            asked = [member.parameters.get("delay_ms", 0) / 1000 for member in batch.requests]
            time.sleep(max([self.delay_s, *asked]))
            return {"y": inputs["x"]}
"""

# Raises where a row's first value is 666.
POISON = """
    from moorage import Model

    class Poison(Model):
        def infer(self, inputs, batch):
            if (inputs["x"][:, 0] == 666).any():
                raise RuntimeError("secret detail of the model")
            return {"y": inputs["x"]}
"""

# Says per row how many rows its run had, and which run it was.
TAG = """
    import torch
    from moorage import Model

    class Tag(Model):
        def load(self, context):
            self.runs = 0

        def infer(self, inputs, batch):
            self.runs += 1
            y = torch.zeros_like(inputs["x"])
            y[:, 0] = batch.rows
            y[:, 1] = self.runs
            return {"y": y}
"""

# Takes 0.3 s to load, or parameters.load_s; its weights are parameters.weights_mib of real memory.
FAT = """
    import time
    import torch
    from moorage import Model

    class Fat(Model):
        def load(self, context):
            time.sleep(context.parameters.get("load_s", 0.3))
            self.weights = torch.ones(context.parameters["weights_mib"] * 2**20 // 4)

        def infer(self, inputs, batch):
            time.sleep(max(member.parameters.get("delay_ms", 0) for member in batch.requests) / 1000)
            return {"y": inputs["x"] * self.weights[0]}
"""

BROKEN = """
    from moorage import Model

    class Broken(Model):
        def load(self, context):
            raise ValueError("no such weights")

        def infer(self, inputs, batch):
            return {}
"""


def write_simulated_model(
    root: Path,
    name: str,
    *,
    run_s: float = 0.0,
    load_s: float = 0.0,
    max_batch_size: int = 8,
    extra: str = "",
    top: str = "",
    simulated: str = "",
) -> Path:
    """A model that takes its time and answers with zeros; its worker starts at once. Its folder.

    simulated: more keys of its table [simulated].
    """
    folder = write_python_model(root, name, "", max_batch_size=max_batch_size, top=top, extra=extra)
    manifest = (folder / "model.toml").read_text().replace('"python"', '"simulated"')
    table = f"[simulated]\nload_s = {load_s}\nrun_s = {run_s}\n{dedent(simulated)}\n"
    (folder / "model.toml").write_text(f"{manifest}\n{table}")
    return folder


def write_fat_model(root: Path, name: str, mib: int, *, load_s: float = 0.3, top: str = "") -> Path:
    """A FAT model that says how large it is. Its folder."""
    extra = f'[memory]\nweights = "{mib} MiB"\n[parameters]\nweights_mib = {mib}\nload_s = {load_s}\n'
    return write_python_model(root, name, FAT, top=top, extra=extra)


ON_DEMAND = 'load = "on_demand"\n'
DEDICATED = '[placement]\nisolation = "dedicated"\n'
EXPLICIT = 'load = "explicit"\n'
