from moorage.scheduling.timers import Due, RequestDue, RestartDue, Timers


def test_gives_what_is_due_in_order_and_keeps_the_rest() -> None:
    timers = Timers()
    assert [timers.next_s] == [None]
    for at_s, name in [(3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a2")]:
        timers.add(at_s, RestartDue(name))
    assert timers.next_s == 1.0
    assert timers.take_due(0.5) == []
    assert timers.take_due(2.0) == [RestartDue("a"), RestartDue("a2"), RestartDue("b")]
    assert (timers.next_s, len(timers)) == (3.0, 1)


def test_counts_from_the_moment_that_is_dealt_with() -> None:
    timers = Timers()
    timers.take_due(5.0)
    timers.add_in(2.0, RestartDue("a"))
    assert timers.next_s == 7.0
    assert RestartDue("a") in timers


def test_few_are_never_looked_through() -> None:
    timers = Timers()
    for number in range(1000):
        timers.add(float(number), RequestDue(number))
    timers.compact(lambda at_s, due: False)
    assert len(timers) == 1000


def test_many_are_looked_through_only_when_they_have_doubled() -> None:
    timers = Timers()
    looks = 0

    def matters(at_s: float, due: Due) -> bool:
        nonlocal looks
        looks += 1
        return isinstance(due, RequestDue) and due.request_id % 2 == 0

    for number in range(100_000):
        timers.add(float(100_000 - number), RequestDue(number))
        timers.compact(matters)
    assert 50_000 <= len(timers) < 100_000
    assert looks < 5 * 100_000
    due = timers.take_due(100_000.0)
    assert [each.request_id for each in due if isinstance(each, RequestDue) and each.request_id % 2 == 0] == list(
        range(99_998, -1, -2)
    )
