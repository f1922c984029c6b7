"""An hour of everything within the bytes that a setting allows, whoever comes and goes."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

from forebay_proxy.console.history import ALL, BROKER, CLIENT, TOPIC, TOTALS, WORKER, History

MIB = 1 << 20


def columns(
    history: History, kind: str, key: str, seconds: int, now: int, points: int
) -> tuple[list[int], list[list[float | None]]]:
    times, found = history.columns(kind, key, seconds, now, points)
    return times, list(found)


def totals(value: float) -> list[float]:
    return [value] * len(TOTALS)


def test_seconds_come_back_as_they_were_told() -> None:
    history = History(16 * MIB)
    for second in range(100, 110):
        history.put("totals", ALL, second, totals(second))
    times, found = columns(history, "totals", ALL, 5, 109, 100)
    assert times == [105, 106, 107, 108, 109]
    assert found[0] == [105, 106, 107, 108, 109]


def test_many_ticks_become_few_points_of_their_mean_or_their_peak() -> None:
    history = History(16 * MIB)
    for second in range(3600):
        history.put("totals", ALL, second, totals(second % 10))
    times, found = columns(history, "totals", ALL, 3600, 3599, 360)
    assert len(times) == 360
    assert {later - earlier for earlier, later in pairwise(times)} == {10}
    assert found[TOTALS.index("records_in")][-1] == 4.5
    assert found[TOTALS.index("added_p99")][-1] == 9


def test_points_stand_still_as_time_goes_on() -> None:
    history = History(16 * MIB)
    for second in range(1000):
        history.put("totals", ALL, second, totals(1))
    first, _ = columns(history, "totals", ALL, 600, 995, 60)
    later, _ = columns(history, "totals", ALL, 600, 999, 60)
    assert set(later[:-1]) <= {*first, *later[-1:]}


def test_what_is_not_known_is_none() -> None:
    history = History(16 * MIB)
    history.put("broker", "1", 50, [float("nan")] * len(BROKER))
    assert columns(history, "broker", "1", 2, 50, 10)[1][0] == [None, None]
    assert columns(history, "broker", "2", 2, 50, 10) == ([], [])


def test_topics_are_kept_by_ten_seconds_and_partitions_by_the_minute() -> None:
    history = History(16 * MIB)
    for second in range(0, 600, 10):
        history.put("topic", "ponds", second, [second, 0])
        history.put("partitions", "ponds", second, [second, second])
    assert columns(history, "topic", "ponds", 30, 595, 100)[0] == [570, 580, 590]
    assert columns(history, "partitions", "ponds", 120, 595, 100) == ([480, 540], [[530, 590], [530, 590]])


def test_a_topic_that_was_given_partitions_begins_anew() -> None:
    history = History(16 * MIB)
    history.put("partitions", "ponds", 0, [1, 1])
    history.put("partitions", "ponds", 60, [1, 1, 1])
    assert len(columns(history, "partitions", "ponds", 60, 60, 10)[1]) == 3
    used = history.size
    history.put("partitions", "ponds", 120, [1, 1, 1])
    assert history.size == used


def test_what_is_long_gone_makes_room() -> None:
    history = History(16 * MIB)
    history.put("client", "old", 0, [1, 0])
    alone = history.size
    history.put("client", "new", 3600, [1, 0])
    history.sweep(3600)
    assert list(history.keys("client")) == ["new"]
    assert history.size == alone


def test_however_many_there_are_it_keeps_its_bytes_and_says_what_is_missing() -> None:
    most = 4 * MIB
    tracemalloc.start()
    history = History(most)
    for number in range(20_000):
        key = f"key-{number}"
        history.put("topic", key, 10, [0.0] * len(TOPIC))
        history.put("client", key, 10, [0.0] * len(CLIENT))
        history.put("broker", key, 10, [0.0] * len(BROKER))
        history.put("worker", key, 10, [0.0] * len(WORKER))
        history.put("partitions", key, 10, [0.0] * 12)
    history.put("totals", ALL, 10, totals(1))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert history.size <= most
    assert taken <= most * 1.5  # keys are the callers'
    assert set(history.missing) == {"topic", "client", "broker", "worker", "partitions"}
    assert history.row("totals", ALL, 10)[0] == 1


def test_by_default_there_is_room_for_many() -> None:
    history = History(16 * MIB)
    for number in range(40):
        history.put("broker", str(number), 0, [0.0] * len(BROKER))
    for number in range(30):
        history.put("worker", str(number), 0, [0.0] * len(WORKER))
    for number in range(500):
        history.put("topic", str(number), 0, [0.0] * len(TOPIC))
        history.put("partitions", str(number), 0, [0.0] * 12)
    for number in range(1000):
        history.put("client", str(number), 0, [0.0] * len(CLIENT))
    assert history.missing == {}
