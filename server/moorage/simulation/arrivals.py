"""Who asks for what, when. Lazy, and the same for the same seed, on every machine.

Only `Random.random` is used, whose sequence Python promises not to change, and times are whole nanoseconds, as the
last bits of a logarithm differ between machines.
"""

import math
from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from random import Random
from typing import NamedTuple

from moorage.simulation.fleet import Fleet, draw_position
from moorage.simulation.reading import ScenarioError
from moorage.simulation.scenario import Bursts, ClosedLoop, Poisson, Popularity, Recorded, Scenario, Stream


class Arrival(NamedTuple):
    """One request. model: its position in the fleet. stream: whose it is. priority: 0 is the model's own."""

    time_s: float
    model: int
    rows: int
    priority: int
    timeout_s: float
    stream: int


class Traffic:
    """All streams of a scenario, until so many requests have come, or so many seconds are over."""

    def __init__(self, scenario: Scenario, fleet: Fleet) -> None:
        self._left = math.inf if scenario.requests is None else scenario.requests
        self._until_s = math.inf if scenario.duration_s is None else scenario.duration_s
        self._sources = [
            _source(index, stream, fleet, Random(f"{scenario.seed} arrivals {index}"))
            for index, stream in enumerate(scenario.streams)
        ]

    def first(self) -> list[Arrival]:
        """Everything that comes without anything before it: of a closed loop one from each caller."""
        drawn = [arrival for source in self._sources for arrival in source.first()]
        return [arrival for arrival in sorted(drawn) if self._counted(arrival)]

    def after_arrival(self, arrival: Arrival) -> Arrival | None:
        """What the stream sends next, whatever becomes of this one."""
        return self._counted(self._sources[arrival.stream].after_arrival())

    def after_answer(self, stream: int, now_s: float) -> Arrival | None:
        """What a caller sends who was just answered, or refused."""
        return self._counted(self._sources[stream].after_answer(now_s))

    def _counted(self, arrival: Arrival | None) -> Arrival | None:
        if arrival is None or self._left <= 0 or arrival.time_s > self._until_s:
            return None
        self._left -= 1
        return arrival


class _Source:
    """A stream that sends nothing by itself."""

    def first(self) -> list[Arrival]:
        return []

    def after_arrival(self) -> Arrival | None:
        return None

    def after_answer(self, now_s: float) -> Arrival | None:
        return None


class _Open(_Source):
    """Arrivals that do not depend on answers."""

    def __init__(self, arrivals: Iterator[Arrival]) -> None:
        self._arrivals = arrivals

    def first(self) -> list[Arrival]:
        arrival = next(self._arrivals, None)
        return [] if arrival is None else [arrival]

    def after_arrival(self) -> Arrival | None:
        return next(self._arrivals, None)


class _Closed(_Source):
    """Callers who wait for their answers. Their first requests are spread over the longest that one thinks."""

    def __init__(self, pattern: ClosedLoop, demand: "_Demand", random: Random) -> None:
        self._pattern = pattern
        self._random = random
        self._demand = demand

    def first(self) -> list[Arrival]:
        clients, think_s = self._pattern.clients, self._pattern.most_think_s
        return [self._demand.at(_whole_nanoseconds(think_s * index / clients)) for index in range(clients)]

    def after_answer(self, now_s: float) -> Arrival | None:
        least_s, most_s = self._pattern.least_think_s, self._pattern.most_think_s
        more_s = _whole_nanoseconds((most_s - least_s) * self._random.random()) if most_s > least_s else 0.0
        return self._demand.at(now_s + least_s + more_s)


def _source(index: int, stream: Stream, fleet: Fleet, random: Random) -> _Source:
    if isinstance(stream.pattern, Recorded):
        return _Open(iter(_recorded(index, stream, stream.pattern, fleet)))
    demand = _Demand(index, stream, fleet, random)
    if isinstance(stream.pattern, ClosedLoop):
        return _Closed(stream.pattern, demand, random)
    return _Open(map(demand.at, _times(stream.pattern, random)))


def _recorded(index: int, stream: Stream, trace: Recorded, fleet: Fleet) -> list[Arrival]:
    positions = {key.name: position for position, key in enumerate(fleet.keys)}
    arrivals: list[Arrival] = []
    for line, request in enumerate(trace.requests, start=2):
        position = positions.get(request.model)
        if position is None:
            raise ScenarioError(f"trace line {line}: model: expected the name of a model, got '{request.model}'")
        most_rows = fleet.specs[fleet.keys[position]].max_batch_size
        if request.rows > most_rows:
            raise ScenarioError(f"trace line {line}: rows: expected at most {most_rows}, got {request.rows}")
        arrivals.append(Arrival(request.time_s, position, request.rows, request.priority, stream.deadline_s, index))
    return arrivals


class _Demand:
    """Draws what a request asks for."""

    def __init__(self, index: int, stream: Stream, fleet: Fleet, random: Random) -> None:
        models = [position for name in stream.models or fleet.groups for position in fleet.groups[name]]
        self._index = index
        self._stream = stream
        self._random = random
        self._ranking = _Ranking(models, stream.popularity, random)
        self._priorities = list(stream.priorities)
        self._shares = list(accumulate(stream.priorities.values()))

    def at(self, time_s: float) -> Arrival:
        model = self._ranking.draw(time_s)
        stream = self._stream
        span = stream.most_rows - stream.least_rows
        rows = stream.least_rows + (int(self._random.random() * (span + 1)) if span else 0)
        priority = self._priorities[draw_position(self._shares, self._random) if len(self._shares) > 1 else 0]
        return Arrival(time_s, model, rows, priority, stream.deadline_s, self._index)


class _Ranking:
    """Models in the order of their popularity, which shifts."""

    def __init__(self, models: list[int], popularity: Popularity, random: Random) -> None:
        self._popularity = popularity
        self._random = random
        self._models = models
        self._cumulative = list(accumulate(1 / rank**popularity.zipf for rank in range(1, len(models) + 1)))
        self._drawn = 0
        self._shifts = 0
        self._deal_anew(1.0)

    def draw(self, time_s: float) -> int:
        while self._shifts < self._due_shifts(time_s):
            self._shifts += 1
            self._deal_anew(self._popularity.shift_share)
        self._drawn += 1
        return self._models[draw_position(self._cumulative, self._random)]

    def _due_shifts(self, time_s: float) -> int:
        popularity = self._popularity
        if popularity.shift_every_requests:
            return self._drawn // popularity.shift_every_requests
        return int(time_s / popularity.shift_every_s) if popularity.shift_every_s else 0

    def _deal_anew(self, share: float) -> None:
        """Shuffle the models on some of the ranks."""
        places = list(range(len(self._models)))
        _shuffle(places, self._random)
        places = places[: max(2, round(share * len(places)))]
        moved = [self._models[place] for place in places]
        _shuffle(moved, self._random)
        for place, model in zip(places, moved, strict=True):
            self._models[place] = model


def _shuffle(items: list[int], random: Random) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = int(random.random() * (last + 1))
        items[last], items[other] = items[other], items[last]


def _times(pattern: Poisson | Bursts, random: Random) -> Iterator[float]:
    """Moments of a Poisson process whose rate is constant, or alternates."""
    start_s, needed = 0.0, _exponential(random)
    for length_s, rate_per_s in _phases(pattern):
        end_s, at_s = start_s + length_s, start_s
        while rate_per_s and at_s + needed / rate_per_s < end_s:
            at_s += needed / rate_per_s
            yield _whole_nanoseconds(at_s)
            needed = _exponential(random)
        needed -= (end_s - at_s) * rate_per_s
        start_s = end_s


def _phases(pattern: Poisson | Bursts) -> Iterator[tuple[float, float]]:
    if isinstance(pattern, Poisson):
        return iter([(math.inf, pattern.rate_per_s)])
    cycle = ((pattern.on_s, pattern.on_rate_per_s), (pattern.off_s, pattern.off_rate_per_s))
    return chain.from_iterable(repeat(cycle))


def _exponential(random: Random) -> float:
    return -math.log(1.0 - random.random())


def _whole_nanoseconds(time_s: float) -> float:
    return round(time_s, 9)
