"""How few bytes could come back into a cache of models, if the future were known.

With sizes that differ, the optimum is NP-hard (Berger, Beckmann and Harchol-Balter, "Practical Bounds on Optimal
Caching with Variable Object Sizes", 2018), so it is enclosed:

- Belady: evict whoever is needed again last (L. A. Belady, "A Study of Replacement Algorithms for a Virtual-Storage
  Computer", 1966). It can be done, so the optimum is no higher. As the cost of coming in is bytes, distance alone is
  the rank; distance times size is the rule for the number of misses.
- The lower bound is PFOO-L of that paper: stays in the cache are chosen by what they save per byte and request, and
  only their sum over all time has to fit. So the optimum is no lower.

Both serve every request in its turn. A scheduler that batches changes the order, and may do better than either.
"""

from collections.abc import Sequence


def next_positions(order: Sequence[int]) -> list[int]:
    """For every position, where the same model is asked for again; the end of the order if it is not."""
    following: dict[int, int] = {}
    positions = [len(order)] * len(order)
    for position in range(len(order) - 1, -1, -1):
        positions[position] = following.get(order[position], len(order))
        following[order[position]] = position
    return positions


def fewest_bytes(order: Sequence[int], sizes_bytes: Sequence[int], capacity_bytes: int) -> int:
    """Bytes that come back at least, whatever the policy."""
    stays = sorted(
        (next_position - position, sizes_bytes[order[position]])
        for position, next_position in enumerate(next_positions(order))
        if next_position < len(order)
    )
    returned_bytes = sum(size_bytes for _, size_bytes in stays)
    room = capacity_bytes * len(order)
    for length, size_bytes in stays:
        saved_bytes = min(size_bytes, room // length + 1)  # of the last one a part, or it would be no bound
        returned_bytes -= saved_bytes
        room -= length * size_bytes
        if room <= 0:
            break
    return max(0, returned_bytes)
