"""One cache of models, fed with the order of requests, under simple policies.

A model has to be in the cache to answer a request, and comes in whole. Counted are the bytes that come back, that is
of every coming-in but each model's first, which no policy avoids. Both LRU and LFU are as in the textbooks: LFU counts
from the beginning, also while a model is out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moorage.simulation.belady import fewest_bytes, next_positions
from moorage.simulation.tally import Moved

# Given the position in the order, the model there, and the position at which it is asked for next: the model's rank
# until then. Whoever has the highest goes first.
Rank = Callable[[int, int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Returns:
    """What came back into the cache, by policy."""

    lru: Moved
    lfu: Moved
    belady: Moved
    fewest_bytes: int


def replay_all(order: Sequence[int], sizes_bytes: Sequence[int], capacity_bytes: int) -> Returns:
    """Every policy on the same order of requests. Models larger than the cache are passed over."""
    order = [model for model in order if sizes_bytes[model] <= capacity_bytes]
    counts = [0] * len(sizes_bytes)

    def least_often(position: int, model: int, next_position: int) -> tuple[int, int]:
        counts[model] += 1
        return -counts[model], -position

    def returns(rank: Rank) -> Moved:
        return replay(order, sizes_bytes, capacity_bytes, rank)

    return Returns(
        lru=returns(lambda position, model, next_position: (-position, 0)),
        lfu=returns(least_often),
        belady=returns(lambda position, model, next_position: (next_position, sizes_bytes[model])),
        fewest_bytes=fewest_bytes(order, sizes_bytes, capacity_bytes),
    )


def replay(order: Sequence[int], sizes_bytes: Sequence[int], capacity_bytes: int, rank: Rank) -> Moved:
    """What comes back under a policy that evicts by rank."""
    returned, seen = Moved(), set[int]()
    ranks: dict[int, tuple[int, int]] = {}
    free_bytes = capacity_bytes
    for position, (model, next_position) in enumerate(zip(order, next_positions(order), strict=True)):
        if model not in ranks:
            free_bytes -= sizes_bytes[model]
            while free_bytes < 0:
                victim = max(ranks, key=ranks.__getitem__)
                del ranks[victim]
                free_bytes += sizes_bytes[victim]
            if model in seen:
                returned.add(sizes_bytes[model])
            seen.add(model)
        ranks[model] = rank(position, model, next_position)
    return returned


def replay_apart(
    orders: Mapping[int, Sequence[int]], sizes_bytes: Sequence[int], capacities_bytes: Sequence[int]
) -> Returns:
    """A cache for each device, with the requests that were placed there; the sums."""
    apart = [replay_all(order, sizes_bytes, capacities_bytes[device]) for device, order in sorted(orders.items())]
    return Returns(
        lru=_sum([returns.lru for returns in apart]),
        lfu=_sum([returns.lfu for returns in apart]),
        belady=_sum([returns.belady for returns in apart]),
        fewest_bytes=sum(returns.fewest_bytes for returns in apart),
    )


def _sum(moves: Sequence[Moved]) -> Moved:
    return Moved(sum(moved.count for moved in moves), sum(moved.size_bytes for moved in moves))
