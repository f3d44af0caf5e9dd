"""Who takes part in a run, as its model is told."""

from collections.abc import Mapping

from moorage.authoring import BatchMember
from moorage.workers.lane_messages import Execute

_Shapes = Mapping[str, tuple[int, ...]]


def members_of(message: Execute) -> list[BatchMember]:
    """The callers of a run, each with the shapes of its own inputs."""
    known: dict[int, _Shapes] = {}
    apart = any(item.parts for item in message.inputs)
    members = []
    for index, member in enumerate(message.members):
        shapes = known.get(member.rows)
        if shapes is None or apart:  # else those with as many rows have equal shapes
            shapes = known[member.rows] = _own_shapes(message, index)
        members.append(BatchMember(member.id, member.rows, member.parameters, shapes))
    return members


def _own_shapes(message: Execute, index: int) -> _Shapes:
    if len(message.members) == 1:
        return {item.name: item.parts[0] if item.parts else item.shape for item in message.inputs}
    rows = message.members[index].rows
    return {item.name: item.parts[index] if item.parts else (rows, *item.shape[1:]) for item in message.inputs}
