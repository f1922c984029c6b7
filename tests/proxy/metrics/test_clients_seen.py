"""Which clients there are, and what they speak."""

from __future__ import annotations

import pytest

from forebay_policies.own_choices import TopicChoices
from forebay_proxy.metrics import clients_seen
from forebay_proxy.metrics.clients_seen import MAX_CLIENTS, MAX_VERSIONS, ClientsSeen, SeenClient, merge, past, rows

PRODUCE, FETCH = 0, 1


def seen(*names: str) -> tuple[ClientsSeen, list[SeenClient]]:
    clients = ClientsSeen(0.0)
    return clients, [clients.connected(name, "10.0.0.1", None, None, float(at)) for at, name in enumerate(names)]


class TestSeen:
    def test_a_client_is_its_id_address_and_software(self) -> None:
        clients, (first,) = seen("a")
        assert clients.connected("a", "10.0.0.1", None, None, 5.0) is first
        assert clients.connected("b", "10.0.0.1", None, None, 6.0) is not first
        assert clients.connected("a", "10.0.0.2", None, None, 6.0) is not first
        assert clients.connected("a", "10.0.0.1", "x", "1", 6.0) is not first
        assert (first.connections, first.last_seen) == (2, 5.0)
        clients.gone(first, 9.0)
        assert (first.connections, first.last_seen) == (1, 9.0)

    def test_requests_are_counted_by_api_and_version(self) -> None:
        _, (client,) = seen("a")
        for version in (2, 2, 7):
            client.request(PRODUCE, version)
        client.request(FETCH, 2)
        (row,) = rows([client])
        assert row["requests"] == {"Produce": {"2": 2, "7": 1}, "Fetch": {"2": 1}}

    def test_what_several_workers_estimate_of_a_client_is_added_up(self) -> None:
        one, other = (seen("a")[1][0] for _ in range(2))
        one.idempotent_null_keys, other.idempotent_null_keys = 300, 200
        (row,) = rows(merge([[one], [other]]))
        assert row["idempotent_null_key_records"] == 500

    def test_who_picks_partitions_is_told_by_what_all_workers_have_seen(self) -> None:
        """Each of two sees a part of the client's connections, and half of the partitions that it uses."""
        one, other = (seen("a")[1][0] for _ in range(2))
        one.choices["orders"] = TopicChoices(4, 50, [0, 1])
        (row,) = rows(merge([[one]]))
        assert row["picks_partitions"] == [{"topic": "orders", "used": 2, "partitions": 4}]
        other.choices["orders"] = TopicChoices(4, 50, [2, 3])
        (row,) = rows(merge([[one], [other]]))
        assert row["picks_partitions"] == []
        assert one.choices["orders"].places == [0, 1], "what was merged is left alone"

    def test_versions_that_a_client_makes_up_take_no_memory(self) -> None:
        _, (client,) = seen("a")
        for version in range(32_768):
            client.request(FETCH, version)
        assert len(client.requests) == MAX_VERSIONS

    def test_as_whom_it_was_served_is_told_the_latest_last(self) -> None:
        seen = [ClientsSeen(0.0) for _ in "ab"]
        one, other = (each.connected("a", "127.0.0.1", None, None, 1.0) for each in seen)
        for principal in ("User:a", "User:b", "User:a"):
            one.is_somebody(principal)
        other.is_somebody("User:c")
        (row,) = rows(merge([[one], [other]]))
        assert row["principals"] == ["User:b", "User:a", "User:c"]
        for number in range(100):
            one.is_somebody(f"User:{number}")
        assert one.principals == [f"User:{number}" for number in range(90, 100)]

    def test_a_long_name_is_cut(self) -> None:
        _, (client,) = seen("a" * 30_000)
        assert client.client_id == "a" * 255

    def test_of_too_many_those_that_are_gone_make_room(self) -> None:
        clients, everybody = seen(*map(str, range(MAX_CLIENTS)))
        clients.gone(everybody[5], 1.0)
        clients.connected("new", "10.0.0.1", None, None, 2.0)
        names = [client.client_id for client in clients.snapshot(3.0)]
        assert len(names) == MAX_CLIENTS
        assert "5" not in names
        clients.connected("newer", "10.0.0.1", None, None, 2.0)
        assert "0" not in [client.client_id for client in clients.snapshot(3.0)]

    def test_of_those_that_are_connected_the_too_old_are_kept_longest(self) -> None:
        clients, everybody = seen(*map(str, range(MAX_CLIENTS)))
        for client in everybody[:-1]:
            client.request(FETCH, 2 if client is everybody[0] else 4)
        clients.connected("new", "10.0.0.1", None, None, 2.0)
        names = [client.client_id for client in clients.snapshot(3.0)]
        assert (len(names), "0" in names, "1" in names) == (MAX_CLIENTS, True, False)
        for client in clients.snapshot(3.0):
            client.request(PRODUCE, 1)
        clients.connected("newer", "10.0.0.1", None, None, 2.0)
        assert "0" not in [client.client_id for client in clients.snapshot(3.0)]

    def test_of_one_that_had_made_room_nothing_is_kept_though_it_is_connected(self) -> None:
        clients, (client,) = seen("till")
        assert [clients.too_old(client, FETCH, 2) for _ in range(2)] == [True, False]
        for name in range(MAX_CLIENTS):
            clients.connected(str(name), "10.0.0.1", None, None, 20.0)
        assert not clients.too_old(client, FETCH, 2)
        assert not clients._refused
        assert clients.too_old(clients.connected("till", "10.0.0.1", None, None, 30.0), FETCH, 2)

    def test_one_that_had_made_room_and_comes_back_has_a_rate_from_0(self) -> None:
        clients, (client,) = seen("till")
        client.records = 1000
        clients.turn(10.0)
        clients.turn(20.0)
        clients.gone(client, 20.0)
        for name in range(MAX_CLIENTS):
            clients.connected(str(name), "10.0.0.1", None, None, 20.0)
        clients.connected("till", "10.0.0.1", None, None, 20.0).records = 50
        assert [each.rate for each in clients.snapshot(20.0) if each.client_id == "till"] == [5]

    def test_the_rate_is_that_of_the_last_two_windows(self) -> None:
        clients, (client,) = seen("a")
        client.records += 300
        assert clients.snapshot(10.0)[0].rate == 30
        clients.turn(30.0)
        client.records += 600
        assert clients.snapshot(60.0)[0].rate == 15
        clients.turn(60.0)
        assert clients.snapshot(90.0)[0].rate == 10
        clients.turn(90.0)
        assert clients.snapshot(120.0)[0].rate == 0


class TestMerged:
    def test_workers_are_added_up(self) -> None:
        one, (mine,) = seen("a")
        other, (theirs, _) = seen("a", "b")
        mine.request(PRODUCE, 2)
        theirs.request(PRODUCE, 2)
        theirs.request(PRODUCE, 3)
        mine.records, theirs.records = 5, 6
        merged = merge([one.snapshot(1.0), other.snapshot(1.0)])
        assert [(client.client_id, client.connections, client.records) for client in merged] == [
            ("a", 2, 11),
            ("b", 1, 0),
        ]
        assert merged[0].requests == {2: 2, 3: 1}
        assert mine.requests == {2: 1}, "what was merged is left alone"

    def test_of_a_worker_that_is_gone_remains_what_it_counted(self) -> None:
        clients, (client,) = seen("a")
        client.records = 7
        (old,) = past(clients.snapshot(1.0))
        assert (old.connections, old.records, old.rate) == (0, 7, 0.0)

    def test_no_more_are_kept_than_one_worker_may_see(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients_seen, "MAX_CLIENTS", 2)
        one = [SeenClient(str(at), "", None, None, 0, last_seen=at) for at in range(3)]
        one.append(SeenClient("open", "", None, None, 1, last_seen=-1))
        assert {client.client_id for client in merge([one])} == {"2", "open"}
        old = SeenClient("old", "", None, None, 1, last_seen=-2)
        old.request(FETCH, 2)
        newer = SeenClient("newer", "", None, None, 1, last_seen=5)
        assert {client.client_id for client in merge([one, [old], [newer]])} == {"old", "newer"}


class TestRows:
    @pytest.mark.parametrize(
        ("spoken", "too_old", "bridged"),
        [
            ({PRODUCE: [3, 9]}, [], False),
            ({PRODUCE: [0, 3]}, ["Produce v0"], True),
            ({PRODUCE: [1], FETCH: [2]}, ["Produce v1", "Fetch v2"], False),
            ({FETCH: [3, 4]}, ["Fetch v3"], False),
            ({}, [], False),
        ],
    )
    def test_who_survives_kafka_4(self, spoken: dict[int, list[int]], too_old: list[str], bridged: bool) -> None:
        _, (client,) = seen("a")
        for key, versions in spoken.items():
            for version in versions:
                client.request(key, version)
        (row,) = rows([client])
        assert (row["too_old_for_kafka_4"], row["bridged"]) == (too_old, bridged)
        assert row["survives_kafka_4"] is not bool(too_old)

    def test_the_command_that_asks_is_none_of_them(self) -> None:
        clients, (client,) = seen("a")
        asking = clients.connected("forebay-clients", "10.0.0.1", clients_seen.SOFTWARE, "1", 0.0)
        assert [row["client_id"] for row in rows([client, asking])] == ["a"]

    def test_those_who_do_not_come_first(self) -> None:
        _, (young, old) = seen("young", "old")
        young.request(PRODUCE, 9)
        old.request(PRODUCE, 1)
        assert [row["client_id"] for row in rows([young, old])] == ["old", "young"]
