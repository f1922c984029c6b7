"""Which port stands for which broker, whoever comes first."""

from __future__ import annotations

from forebay_proxy.clients.listener_ports import ListenerPorts
from forebay_proxy.config.kinds import ListenerAddress
from forebay_proxy.config.listeners import ClientListener, ListenerSettings, resolve


def listeners(*ports: int, **node_ports: dict[int, int]) -> tuple[ClientListener, ...]:
    """Named a, b, … on these ports."""
    names = "abc"[: len(ports)]
    addresses = [ListenerAddress(name.upper(), "h", port) for name, port in zip(names, ports, strict=True)]
    told = {name: ListenerSettings(node_ports=node_ports.get(name, {})) for name in names}
    return resolve(addresses, {name.upper(): "PLAINTEXT" for name in names}, told, "")


def test_broker_n_is_behind_the_port_after_the_nth_of_each_listener() -> None:
    a, b = listeners(9092, 9192)
    ports = ListenerPorts((a, b))
    assert [ports.of(a, node) for node in (0, 1, 98)] == [9093, 9094, 9191]
    assert [ports.of(b, node) for node in (0, 1, 200)] == [9193, 9194, 9393]


def test_no_listener_counts_into_the_ports_of_the_next() -> None:
    b, a = listeners(9192, 9092)
    ports = ListenerPorts((b, a))
    assert ports.of(a, 99) is None
    assert ports.of(a, 100) is None
    assert ports.of(a, -1) is None


def test_what_is_named_is_nobody_elses_whoever_asks_first() -> None:
    a, b = listeners(9092, 9192, a={7: 9194}, b={3: 9093})
    ports = ListenerPorts((a, b))
    assert (ports.of(a, 0), ports.of(b, 1)) == (None, None)
    assert (ports.of(a, 7), ports.of(b, 3)) == (9194, 9093)
    assert (ports.of(a, 1), ports.of(b, 0)) == (9094, 9193)


def test_a_broker_whose_port_is_told_for_another_has_none_until_it_is_told_with_one_of_its_own() -> None:
    """Else clients would be told one address for two brokers, which librdkafka before 2.10 takes for one (#4557)."""
    address = ListenerAddress("A", "h", 9092)
    ports = {}
    for told in ({0: 9094}, {0: 9094, 1: 9093}):
        (a,) = resolve([address], {"A": "PLAINTEXT"}, {"a": ListenerSettings(advertised_node_ports=told)}, "")
        ports[len(told)] = [ListenerPorts((a,)).of(a, node) for node in (0, 1, 2)]
    assert ports == {1: [9093, None, 9095], 2: [9093, 9094, 9095]}


def test_where_only_those_named_have_a_port_nothing_is_counted_up() -> None:
    address = ListenerAddress("A", "h", 9092)
    told = ListenerSettings(node_ports={0: 9093, 7: 9300}, node_ports_only=True)
    (a,) = resolve([address], {"A": "PLAINTEXT"}, {"a": told}, "")
    assert [ListenerPorts((a,)).of(a, node) for node in (0, 1, 7)] == [9093, None, 9300]


def test_there_is_no_port_beyond_the_last() -> None:
    (a,) = listeners(65_000)
    ports = ListenerPorts((a,))
    assert ports.of(a, 534) == 65_535
    assert ports.of(a, 535) is None


def test_of_200_brokers_on_three_listeners_no_two_share_a_port() -> None:
    found = listeners(9000, 9100, 9300, b={1000: 9050, 1001: 9350}, c={5: 9051})
    ports = ListenerPorts(found)
    taken = [port for listener in found for node in [*range(200), 1000, 1001] if (port := ports.of(listener, node))]
    assert len(set(taken)) == len(taken) > 400
    assert not {9000, 9100, 9300} & set(taken)
