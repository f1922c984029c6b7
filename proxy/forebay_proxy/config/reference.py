"""What `forebay config` tells beyond one line a setting: headings, Kafka's counterpart, and the explanation in full.

settings.py has types, defaults, bounds and the one line. Nothing here takes part in reading settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_COUNTERPART: Final = "none"


class Reference(NamedTuple):
    """`details`: whole sentences that follow the setting's description. `kafka`: whose setting of this name it is.

    `example`: a value as on the command line, for settings whose default shows too little; empty: the default.
    """

    details: str
    kafka: str = NO_COUNTERPART
    example: str = ""


def _producer(differs: str = "same default") -> str:
    return f"producer setting, {differs}"


def _broker(differs: str = "same default") -> str:
    return f"broker setting, {differs}"


def _client(differs: str = "same default") -> str:
    return f"client setting, {differs}"


_SECRET: Final = (
    "A secret: refer to it as ${file:path:key} (a name in a .properties file), ${dir:path:key} (a file in a folder) or "
    "${env:VARIABLE}. It is never shown."
)
_SUITES: Final = (
    "Java's names, of TLS 1.2 and 1.3; a version without a suite here is not spoken. Python before 3.15 cannot choose "
    "among those of TLS 1.3: name all of them or none."
)
_SUITES_EXAMPLE: Final = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
_RETRY: Final = "Pauses are spread by up to 20 % at random, so that they do not coincide."

TOPICS: Final[Mapping[str, Mapping[str, Reference]]] = {
    "Brokers and listeners": {
        "bootstrap.servers": Reference(
            "One that answers is enough; name several so that Forebay also starts while one of them is down.",
            _producer("required there, too"),
            "kafka-1:9092,kafka-2:9092",
        ),
        "listen": Reference(
            "Clients get it as their bootstrap server. Each broker has a port of its own, so the ports above must be "
            "free and reachable: brokers 1 to 3 behind port 19092 are on 19094 to 19096. A broker whose port cannot be "
            "opened is hidden from clients. Either this or listeners is required.",
            "none; like listeners of a broker",
            "0.0.0.0:19092",
        ),
        "listeners": Reference(
            "Written NAME://host:port. A name of your own needs an entry in listener.security.protocol.map. Each "
            "listener has a port for every broker, on its own port + 1 + node id up to the next listener's port, so "
            "leave room between them; a client is told the addresses of the listener that it came by. What a listener "
            "is told by itself is set as listener.name.<name>.<setting>, the name in lower case (docs/security.md).",
            _broker("required there; an address of its own for every listener"),
            "PLAINTEXT://0.0.0.0:19092,SSL://0.0.0.0:19192",
        ),
        "listener.security.protocol.map": Reference(
            "Clients of a SASL_PLAINTEXT or SASL_SSL listener log in at the brokers, each as itself, by any mechanism "
            "that these have; nothing of theirs is merged or answered from a cache, unless upstream.identity says so, "
            "and security.protocol must be one of the two as well. A map of your own replaces the default.",
            _broker(),
            "INTERNAL:PLAINTEXT,EXTERNAL:SSL",
        ),
        "advertised.host": Reference(
            "Needed behind a load balancer or address translation, where the address that a client connects to is not "
            "the one that Forebay sees. listener.name.<name>.advertised.host comes before it.",
            "none; like advertised.listeners of a broker",
            "kafka.example.org",
        ),
        "advertised.address": Reference(
            "For balancers with an address or name for each broker, all on one port: $(node) is the node id, and "
            "b3.forebay:9092 must lead to the port of broker 3 here. Instead of advertised.host. With listeners, each "
            "has its own: listener.name.<name>.advertised.address. See docs/balancers.md.",
            "none; like advertised.listeners of a broker",
            "b$(node).forebay:9092",
        ),
        "advertised.node.ports": Reference(
            "For balancers and address translation that change ports. A broker that is not named is told with the port "
            "that it has here; where that is another's in this list, it is hidden from clients. With listeners, each "
            "has its own: listener.name.<name>.advertised.node.ports.",
            "none; like advertised.listeners of a broker",
            "1:31001,2:31002",
        ),
        "node.ports": Reference(
            "For large node ids, and for ports that are taken. Clients must be able to reach these ports, too. With "
            "listeners, each has its own: listener.name.<name>.node.ports.",
            NO_COUNTERPART,
            "1001:19093,1002:19094",
        ),
        "node.ports.only": Reference(
            "For a firewall, a balancer or a Service that passes on these ports and no others: clients are not told of "
            "a broker that node.ports does not name, which the log and forebay_brokers_without_port say, where else "
            "they would wait at a port that leads nowhere. With listeners, each has its own: "
            "listener.name.<name>.node.ports.only.",
            NO_COUNTERPART,
            "true",
        ),
    },
    "Process": {
        "workers": Reference(
            "Above 1, a supervisor starts the workers, restarts those that die or hang, and serves the admin endpoint "
            "for all of them. Each worker has its own buffer.memory and merges only the records of its own "
            "connections.",
            NO_COUNTERPART,
            "4",
        ),
        "admin": Reference(
            "At / is a page for people, /metrics is for Prometheus, /clients lists who is connected, /healthz says "
            "whether to restart the process and /readyz whether to send it clients. The last two are open to all. "
            "On an address that other hosts can reach it needs TLS (admin.ssl.keystore.location), and "
            "admin.bearer.token or admin.ssl.truststore.location for all other paths; or admin.unprotected=true.",
            NO_COUNTERPART,
            "127.0.0.1:9091",
        ),
        "admin.ssl.keystore.location": Reference(
            "With it the endpoint speaks HTTPS only. Nobody else may be able to read the file.",
            NO_COUNTERPART,
            "/etc/forebay/tls/admin.pem",
        ),
        "admin.ssl.key.password": Reference(_SECRET, NO_COUNTERPART, "${env:KAFKA}"),
        "admin.ssl.truststore.location": Reference(
            "A client with a certificate that is signed by one of these may read everything, without a token.",
            NO_COUNTERPART,
            "/etc/forebay/tls/admin-ca.pem",
        ),
        "admin.bearer.token": Reference(
            f"Sent as Authorization: Bearer …; then /metrics and /clients need it on loopback, too. {_SECRET}",
            NO_COUNTERPART,
            "${env:KAFKA}",
        ),
        "admin.change.token": Reference(
            "Without it the endpoint is for reading only. Sent as Authorization: Bearer …, with POST and JSON; it may "
            f"read everything, too. {_SECRET}",
            NO_COUNTERPART,
            "${env:KAFKA}",
        ),
        "admin.socket": Reference(
            "Commands that change a running Forebay go through it (docs/operating.md), and everything that is at admin "
            "is there, too. Whoever may use the file may change whatever can be changed, so it is made with mode 0600. "
            "One that a dead process has left is replaced; with workers the supervisor has it.",
            NO_COUNTERPART,
            "/run/forebay/admin.sock",
        ),
        "admin.unprotected": Reference(
            "For networks in which everybody may see who is connected: client ids, addresses and rates.",
            NO_COUNTERPART,
            "true",
        ),
        "admin.hosts": Reference(
            "A request for the page or its API whose Host is none of these is refused, so that no page of a stranger "
            "can have its name point here and read what is here. So is one for /clients, where no token or certificate "
            "is asked for. /metrics and the probes take any.",
            NO_COUNTERPART,
            "forebay.example.net",
        ),
        "admin.history.bytes": Reference(
            "For 40 brokers, 30 workers, 500 topics of 12 partitions and 1,000 clients the default suffices. What "
            "there is no room for is shown as it is now, without its past.",
            NO_COUNTERPART,
            "33554432",
        ),
        "metrics.topics.max": Reference(
            "forebay_topic_records_total and forebay_topic_bytes_total name the topics that are met first, as many as "
            'this, and count all others as "(other)". Each costs four series of each Forebay.',
            NO_COUNTERPART,
            "50",
        ),
        "otlp.endpoint": Reference(
            "The names and numbers of /metrics. OpenTelemetry's own variables say how else a collector is reached "
            "(OTEL_EXPORTER_OTLP_HEADERS and so on), and who this is (OTEL_RESOURCE_ATTRIBUTES). Needs "
            "pip install '.[otlp]' in a clone of Forebay; docs/monitoring.md.",
            NO_COUNTERPART,
            "http://127.0.0.1:4318/v1/metrics",
        ),
        "otlp.interval.ms": Reference(
            "An export that is not done when the next is due goes on, and the next is left out.",
            NO_COUNTERPART,
            "15000",
        ),
        "shutdown.timeout.ms": Reference(
            "Draining means: accept no connections, send every batch, answer every request, see records without acks "
            "off to their broker. Whatever stops the process (systemd, Kubernetes) must allow more time than this.",
        ),
        "log.level": Reference("debug < info < warning < error.", NO_COUNTERPART, "warning"),
        "log.format": Reference("Logs go to stderr, one line per event, and never contain records.", example="json"),
    },
    "Which records may move": {
        "topics.include": Reference(
            "Glob patterns: * any text, ? one character, [a-z] one of these, [!a-z] none of these. Records with a key "
            "never move, whatever is set here; internal topics are never touched.",
            NO_COUNTERPART,
            "orders,clicks-*",
        ),
        "topics.exclude": Reference(
            "Glob patterns. Batches of these topics go to the broker as they came.", NO_COUNTERPART, "audit-*"
        ),
        "client.ids.include": Reference(
            "Glob patterns, matched against the client's client.id.", example="web-*,till-*"
        ),
        "client.ids.exclude": Reference(
            "Glob patterns, matched against the client's client.id; wins over client.ids.include. On the wire, a "
            "partition chosen by an application looks the same as one chosen by a client's partitioner, so exclude "
            "clients that choose partitions themselves. The default covers Kafka Connect, Kafka Streams and "
            "MirrorMaker; a value of your own replaces it, so repeat what you want to keep.",
            NO_COUNTERPART,
            "connector-producer-*,billing-*",
        ),
        "moves": Reference(
            "With observe, batches that Forebay would touch go to the broker as they came. It opens them all the same, "
            "as far as max.decompressed.bytes allows, and counts what would have become of them: see "
            "forebay_observed_records_total and the page. What is excluded is not observed. Observing takes less CPU "
            "than merging, and more than passing through. In YAML, quote the value: a bare on is true there.",
            NO_COUNTERPART,
            "observe",
        ),
        "topics.move": Reference(
            "Glob patterns, for going from moves=observe to moves=on a topic at a time. They mean nothing while moves "
            "is on.",
            NO_COUNTERPART,
            "orders,clicks-*",
        ),
        "topics.observe": Reference("Glob patterns; wins over topics.move.", NO_COUNTERPART, "invoices-*"),
        "client.ids.observe": Reference(
            "Glob patterns, matched against the client's client.id; wins over topics.move.", example="till-*"
        ),
    },
    "Partitioning": {
        "partitioner": Reference(
            "adaptive: as Kafka's own since 3.3 (KIP-794), partitions with long queues are chosen less often. "
            "expected_wait: the sooner a partition acknowledges, the likelier it is chosen. uniform: all partitions "
            "alike. sticky: KIP-480, one partition until a new batch begins. round_robin: the next partition for "
            "every batch of a client. A name that a package registers as an entry point works, too.",
            "none; like partitioner.class of the producer",
            "expected_wait",
        ),
        "partitioner.adaptive.partitioning.enable": Reference(
            "Also understood as enable.adaptive.partitioning, its name in KIP-794.", _producer(), "false"
        ),
        "partitioner.sticky.batch.size": Reference(
            "Longer turns make larger batches, shorter ones spread records more evenly.", "proposed in KIP-794", "65536"
        ),
        "partitioner.availability.timeout.ms": Reference(
            "Counts for adaptive and expected_wait. Also understood as partition.availability.timeout.ms, its name in "
            "KIP-794.",
            _producer(),
            "2000",
        ),
        "partitioner.min.share": Reference(
            "0.005 is 0.5 % of the choices for each partition, at most 10 % for all together. With 0 a partition that "
            "has become slow may not be tried again for a long time.",
            NO_COUNTERPART,
            "0.01",
        ),
        "brokers.avoid": Reference(
            "Records that wait for them move to others, too. Those with a key, idempotent ones and whatever passes "
            "untouched go where they always go. forebay avoid ID does the same for a while (docs/operating.md).",
            NO_COUNTERPART,
            "3",
        ),
    },
    "Racks": {
        "partitioner.rack.aware": Reference(
            "A record without a key then goes to a partition whose leader is in the rack of its client, as long as "
            "partitioner.rack.max.skew allows; with every partitioner. Racks of brokers are their broker.rack. Clients "
            "whose rack is not known, or has no leader, send to where least was sent.",
            _producer("since 4.4, without a bound on the skew"),
            "true",
        ),
        "partitioner.rack.max.skew": Reference(
            "Where clients and leaders are not spread over the racks alike, staying local gives some partitions more "
            "than others. With 0.2 each gets 80 to 120 % of what it would if all got the same, and as many records "
            "stay in their rack as that allows. 0 spreads evenly. It is kept among the clients that one worker sees. "
            "Where client.rack alone is set, all of them are in one rack, and all records stay there.",
            NO_COUNTERPART,
            "0.1",
        ),
        "client.rack": Reference(
            "For a sidecar, or where all clients of a Forebay are in its zone. client.racks comes before it, and so "
            "does listener.name.<name>.client.rack.",
            _producer("since 4.4, there its own"),
            "az-a",
        ),
        "client.racks": Reference(
            "The smallest network that a client's address is in counts. It comes before a listener's client.rack.",
            NO_COUNTERPART,
            "10.1.0.0/16:az-a,10.2.0.0/16:az-b",
        ),
    },
    "Batching": {
        "linger.ms": Reference(
            "Adaptive sends at once while Forebay is idle, and when it is busy whatever has arrived by the time a "
            "batch's turn comes. A fixed time trades latency for larger batches, as in Kafka; no record "
            "lingers for more than half of the time for which its client waits.",
            _producer("default 5 (0 before Kafka 4.0), no -1"),
            "5",
        ),
        "batch.initial.size": Reference(
            "Smaller steps waste less memory on small batches, larger ones cost less CPU on large batches. batch.size "
            "and batch.max.size must be multiples of it.",
            "proposed in KIP-782, same default",
        ),
        "batch.size": Reference(
            "It is also the unit in which adaptive weighs queues, and the length of a partitioner's turn.",
            _producer("same default, but there a batch ends at this size"),
        ),
        "batch.max.size": Reference(
            "A batch that waits for its broker grows up to this size. Must be at most max.request.size; keep it below "
            "what topics allow (max.message.bytes, 1 MiB by default), or batches are refused and split.",
            "proposed in KIP-782, same default",
        ),
        "max.request.size": Reference("One request carries batches of many partitions.", _producer()),
        "merge.across.client.ids": Reference(
            "Brokers apply quotas by the client id of a request. false: each request carries one client's id and its "
            "records alone, on connections of its own. true: the same from a broker's first throttle time on, until "
            "it has not throttled for a minute or, where it soon does so again, up to an hour. Set it to false where "
            "quotas of single client ids must hold: what is merged counts for none of them. See docs/quotas.md.",
            NO_COUNTERPART,
            "false",
        ),
        "max.in.flight.requests.per.connection": Reference(
            "Each request has a connection to itself, since brokers work on one of a connection at a time. It carries "
            "partitions that wait for the same replicas: all of acks=1, or of acks=all those of one replica set. This "
            "bounds the unanswered requests of each. A partition has at most one batch in flight for each of acks=1 "
            "and acks=all whatever is set here, so order is kept.",
            _producer(),
        ),
    },
    "Memory": {
        "buffer.memory": Reference(
            "Holds records from arrival to acknowledgement, uncompressed where they are merged, and what is kept of "
            "their requests meanwhile: 2 KiB each, and half a KiB for each partition. How much one broker, partition "
            "or client may hold depends on what is left free; clients with more to send there are not read "
            "until its share is free.",
            _producer("same default"),
        ),
        "queued.max.request.bytes": Reference(
            "Counts bytes that have arrived, not what a request announces. When it is full, requests that lack the "
            "fewest bytes are completed first. Large requests that wait for one broker take about a quarter of it, "
            "and half of it stays for what arrives.",
            _broker("default -1"),
        ),
        "max.decompressed.bytes": Reference(
            "All batches of one Produce request share it, so a small request cannot expand to fill the memory. Message "
            "sets (Produce v0 to v2) beyond it are refused, since the broker could not take them as they are.",
        ),
    },
    "Timeouts and retries": {
        "request.timeout.ms": Reference(
            "A broker that does not respond in time is disconnected. Also how long clients wait for metadata.",
            _producer(),
        ),
        "delivery.timeout.ms": Reference(
            "When it is over, the client is answered with REQUEST_TIMED_OUT. Must be at least linger.ms + "
            "request.timeout.ms. A client's own timeout counts if it is shorter.",
            _producer(),
        ),
        "enable.idempotence": Reference(
            "A batch whose answer is lost is then sent again until the client's time is up; the broker knows it by its "
            "sequence numbers and does not append it twice. Holds for every acks, which stay the client's. Batches of "
            "clients that are idempotent themselves pass untouched. Where brokers give out no producer id, batches "
            "leave without: before Kafka 2.8 Forebay's user needs IDEMPOTENT_WRITE on the cluster, since then WRITE on "
            "any topic.",
            _producer("there it needs acks=all"),
        ),
        "retry.backoff.ms": Reference(
            f"For batches that a broker refused for the moment. {_RETRY} Topics that brokers do not know are asked for "
            "again after as long, and at last twice a second.",
            _producer(),
        ),
        "retry.backoff.max.ms": Reference("Limits what retry.backoff.ms doubles to.", _producer()),
        "reconnect.backoff.ms": Reference(
            f"Counts for each broker, and each client's login that one refuses, by itself. {_RETRY}", _producer()
        ),
        "reconnect.backoff.max.ms": Reference("Limits what reconnect.backoff.ms doubles to.", _producer()),
        "socket.connection.setup.timeout.ms": Reference(
            "Counts for each address that is tried. Where a client waits that has less than three times as much, an "
            "attempt takes a third of its time, the next one twice that, and so on.",
            _producer(),
        ),
    },
    "Metadata": {
        "metadata.max.age.ms": Reference("Clients wait while brokers are asked.", _producer()),
        "metadata.soft.age.ms": Reference(
            "Topics are refreshed up to a fifth sooner, at random, so that those fetched together are not refreshed "
            "together. Above metadata.max.age.ms it counts as that.",
        ),
        "metadata.max.idle.ms": Reference("Topics that nobody uses are not refreshed for ever.", _producer()),
        "metadata.max.topics": Reference("A topic that was dropped is asked for again when it is needed."),
        "metadata.refresh.group.size": Reference(
            "The most used topics come first; errors are always asked for at once."
        ),
    },
    "Client limits": {
        "connections.max.idle.ms": Reference(
            "Clients close idle connections after 540000 by default, and so before Forebay does. A connection with a "
            "request in progress is not idle.",
            _broker(),
        ),
        "connections.max.age.ms": Reference(
            "Lets a balancer spread clients anew when Forebays were added or replaced: they come again at once. 10 % "
            "sooner or later at random, so that not all come together; then in a client's next pause, or after another "
            "10 % as soon as all is answered. A producer without retries that sends without a pause may see one "
            "request fail.",
            NO_COUNTERPART,
            "600000",
        ),
        "socket.request.timeout.ms": Reference(
            "Progress is 4 KiB/s: a slow line may take hours for a large request, a stalled client is closed.",
        ),
        "socket.request.max.bytes": Reference("As a broker does.", _broker()),
        "client.max.in.flight.requests": Reference(
            "The Java client sends at most 5, librdkafka any number. Nothing is refused: the client waits. Of requests "
            "without acks, which nobody waits for, ten times as many may be under way to brokers.",
        ),
        "max.connections": Reference(
            "The connection that has been idle for longest makes room; while none is idle, new ones are closed. The "
            "limit on open files is raised to fit, as far as the system allows.",
            _broker("default 2147483647"),
        ),
        "max.connections.per.ip": Reference("Behind a load balancer all clients may share one address.", _broker()),
        "authentication.timeout.ms": Reference(
            "From when the connection was accepted. It bounds what clients without a login can hold.", NO_COUNTERPART
        ),
        "connection.failed.authentication.delay.ms": Reference(
            "So that guessing takes time, and clients that are told no do not come back at once.", _broker()
        ),
        "max.identities": Reference(
            "Beyond that, clients that log in at brokers (client.authentication=passthrough) stay untouched, and those "
            "that log in at Forebay (terminate) are refused, and may come again. A user with another password counts "
            "as another one. Each has a metadata cache and connections to brokers of its own, and is forgotten a "
            "minute after its last client. See docs/security.md."
        ),
    },
    "Journal": {
        "journal.dir": Reference(
            "Several workers and several Forebays may share a folder. `forebay-pipeline` reads it.",
            NO_COUNTERPART,
            "/var/lib/forebay/journal",
        ),
        "journal.topic": Reference(
            "The topic must exist; rows about the topic itself are left out.", NO_COUNTERPART, "forebay-journal"
        ),
        "journal.ledger": Reference(
            "Needs journal.dir or journal.topic; `forebay-pipeline audit` reads it. It holds counts, checksums, client "
            "ids and addresses, never records, and costs a third to a half more CPU per request.",
            NO_COUNTERPART,
            "true",
        ),
        "journal.ledger.keys": Reference(
            "Needs journal.ledger. Compaction keeps the last record of each key: by hashes of keys the audit can tell "
            "whether a record that is no more there was superseded or lost. Some 20 bytes of journal a keyed record.",
            NO_COUNTERPART,
            "true",
        ),
        "journal.segment.bytes": Reference("Measured before compression. Files become visible when they are closed."),
        "journal.roll.ms": Reference("Files are also closed at the end of each hour, and when Forebay exits."),
        "journal.queue.bytes": Reference(
            "Traffic never waits for the journal. Dropped rows are logged, and counted in "
            "forebay_journal_rows_dropped_total.",
        ),
        "journal.retention.bytes": Reference(
            "Each deletion is logged. To keep the data, compact it first with `forebay-pipeline compact`.",
            "none; like log.retention.bytes of a broker",
        ),
    },
    "Security toward brokers": {
        "security.protocol": Reference(
            "Every connection to a broker is made in this way: those of senders, those of clients, and those for "
            "metadata. Clients' side of Forebay is not touched by it. With SASL Forebay logs in for all clients (see "
            "upstream.identity.shared) but those of SASL listeners, which log in themselves.",
            _client(),
            "SSL",
        ),
        "ssl.truststore.location": Reference(
            "A JKS or PKCS12 file is refused with the command that converts it.",
            _client("there also JKS and PKCS12"),
            "/etc/forebay/ca.pem",
        ),
        "ssl.truststore.certificates": Reference(
            "Usually a reference, such as ${file:path:key}.", _client(), "${env:KAFKA}"
        ),
        "ssl.keystore.location": Reference(
            "The file must not be readable by others. Brokers take the certificate's subject for whoever sends through "
            "Forebay: see upstream.identity.shared.",
            _client("there also JKS and PKCS12"),
            "/etc/forebay/forebay.pem",
        ),
        "ssl.keystore.certificate.chain": Reference("Needs ssl.keystore.key.", _client(), "${env:KAFKA}"),
        "ssl.keystore.key": Reference(f"In PKCS8 form. {_SECRET}", _client(), "${env:KAFKA}"),
        "ssl.key.password": Reference(_SECRET, _client(), "${env:KAFKA}"),
        "ssl.endpoint.identification.algorithm": Reference(
            "The host is the one that the broker advertises, or that is in bootstrap.servers. Without it anybody "
            "with any certificate of the same signer can pose as a broker.",
            _client(),
        ),
        "ssl.enabled.protocols": Reference("Older ones are not safe and not offered.", _client(), "TLSv1.3"),
        "ssl.cipher.suites": Reference(_SUITES, _client("default Java's choice"), _SUITES_EXAMPLE),
        "sasl.mechanism": Reference(
            "Needed with SASL, unless all listeners are SASL_PLAINTEXT or SASL_SSL: then Forebay needs no login. With "
            "PLAIN the password itself goes to the broker: use it with SASL_SSL only.",
            _client("default GSSAPI, which is not supported"),
            "SCRAM-SHA-512",
        ),
        "sasl.jaas.config": Reference(
            'A line such as org.apache.kafka.common.security.scram.ScramLoginModule required username="u" '
            f'password="p"; Only Kafka\'s modules for PLAIN, SCRAM and OAUTHBEARER are understood. {_SECRET}',
            _client(),
            "${env:KAFKA}",
        ),
        "sasl.oauthbearer.token.endpoint.url": Reference(
            "Tokens are asked for by client credentials, and again before they expire. Its certificate must be signed "
            "by one of the system's, or by those of the option ssl.truststore.location in sasl.jaas.config.",
            _client(),
            "https://login.example.org/oauth2/token",
        ),
        "sasl.oauthbearer.client.credentials.client.id": Reference(
            "The option clientId in sasl.jaas.config does the same.", _client(), "forebay"
        ),
        "sasl.oauthbearer.client.credentials.client.secret": Reference(
            f"The option clientSecret in sasl.jaas.config does the same. {_SECRET}",
            _client(),
            "${env:KAFKA}",
        ),
        "sasl.oauthbearer.scope": Reference("The option scope in sasl.jaas.config does the same.", _client(), "kafka"),
        "upstream.identity.shared": Reference(
            "Brokers know whoever reaches Forebay by Forebay's certificate or user, with all that this may do. "
            "So Forebay does not start with one on an address that other hosts can reach, unless this allows it; nor "
            "with a listener at which several users log in and are all sent as Forebay (upstream.identity=service).",
            NO_COUNTERPART,
            "true",
        ),
    },
}
"""Heading → settings under it, in the order of Settings."""

REFERENCES: Final[Mapping[str, Reference]] = MappingProxyType(
    {name: reference for settings in TOPICS.values() for name, reference in settings.items()}
)

LISTENER_TOPIC: Final = "Settings of each listener"
LISTENER_REFERENCES: Final[Mapping[str, Reference]] = {
    "advertised.host": Reference(
        "For listeners that clients reach under different names. Clients of SSL listeners check it against the "
        "certificate.",
        "none; like advertised.listeners of a broker",
        "kafka.example.org",
    ),
    "advertised.address": Reference(
        "For balancers with an address or name for each broker, all on one port: $(node) is the node id. Instead of "
        "advertised.host; clients of SSL listeners check the name against the certificate.",
        "none; like advertised.listeners of a broker",
        "b$(node).kafka.example.org:9093",
    ),
    "advertised.node.ports": Reference(
        "For balancers and address translation that change ports.",
        "none; like advertised.listeners of a broker",
        "1:31001,2:31002",
    ),
    "node.ports": Reference(
        "For large node ids, and for ports that are taken. Clients must be able to reach these ports, too.",
        NO_COUNTERPART,
        "1001:19193,1002:19194",
    ),
    "node.ports.only": Reference(
        "For a firewall, a balancer or a Service that passes on these ports and no others: clients are not told of a "
        "broker that node.ports does not name, where else they would wait at a port that leads nowhere.",
        NO_COUNTERPART,
        "true",
    ),
    "client.rack": Reference(
        "For a listener that only clients of one zone reach. client.racks comes before it.", NO_COUNTERPART, "az-a"
    ),
    "producers.only": Reference(
        "For networks that let one port through. Consumers and transactional producers are refused, and what a client "
        "sends to all brokers shares one connection and its limits. Not for SASL listeners. advertised.address may "
        "then be without $(node). See docs/balancers.md.",
        NO_COUNTERPART,
        "true",
    ),
    "client.authentication": Reference(
        "passthrough, for SASL_PLAINTEXT and SASL_SSL: by whatever mechanism the brokers have; Forebay keeps no users. "
        "terminate: Forebay answers logins as a broker does, by sasl.enabled.mechanisms, and upstream.identity says as "
        "whom it logs in at brokers for those clients. See docs/security.md.",
        NO_COUNTERPART,
        "terminate",
    ),
    "upstream.identity": Reference(
        "With client.authentication=terminate: service: brokers know all of them as Forebay itself, and their records "
        "are merged together. mapped: brokers know each by the login that upstream.identities.location has for it, "
        "and records are merged with others of the same login. client, for SCRAM: brokers know each as who it is, by "
        "the key that its login reveals. delegation_token: the same for every mechanism, and for certificates, by a "
        "token that brokers give to Forebay's own user for it. With passthrough: passthrough: nothing of a client is "
        "merged or moved. client: once its broker has accepted its login by PLAIN, or by OAUTHBEARER with a JWT, "
        "Forebay presents the same login on connections of its own, and serves the client as it serves those of a "
        "listener without logins, "
        "merged with the same user's records and nobody else's. Clients of other mechanisms stay as they are. See "
        "docs/security.md.",
        NO_COUNTERPART,
        "client",
    ),
    "upstream.identities.location": Reference(
        "It has a table for each login at brokers, identities.<name>, with sasl.mechanism (PLAIN or SCRAM) and "
        'sasl.jaas.config, and a table principals: "User:alice" = "<name>"; "*" is everybody else, and without it '
        "whoever is not in it cannot log in. Values may refer to other files. It is read again when one changes. See "
        "docs/security.md.",
        NO_COUNTERPART,
        "/etc/forebay/identities.toml",
    ),
    "sasl.enabled.mechanisms": Reference(
        "PLAIN: whoever is in plain.sasl.jaas.config. SCRAM-SHA-256, SCRAM-SHA-512: whoever is in the file "
        "scram.credentials.location. OAUTHBEARER: whoever has a token (JWT) of the issuer that sasl.oauthbearer.… "
        "name.",
        _broker("default GSSAPI"),
        "SCRAM-SHA-256,SCRAM-SHA-512",
    ),
    "plain.sasl.jaas.config": Reference(
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="…" user_bob="…"; other options '
        f"of the line are not looked at. {_SECRET}",
        _broker(),
        "${file:/etc/forebay/users.properties:plain.sasl.jaas.config}",
    ),
    "scram.credentials.location": Reference(
        "Made by `forebay users add`, at the brokers and in the file at once. It is read again when it changes.",
        "none; brokers keep it in their log of metadata",
        "/etc/forebay/credentials.json",
    ),
    "sasl.oauthbearer.jwks.endpoint.url": Reference(
        "Required with OAUTHBEARER. It is asked with the first login, then every "
        "sasl.oauthbearer.jwks.endpoint.refresh.ms, and, at most every 10 s, for a key that is not known. Keys for "
        "HMAC are not taken. Where it does not answer, the keys known before serve on.",
        _broker("there also file:"),
        "https://login.example.org/keys",
    ),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": Reference(
        "A key that the issuer has withdrawn counts until then.", _broker(), "600000"
    ),
    "sasl.oauthbearer.expected.issuer": Reference(
        "Required with OAUTHBEARER: it must be the same, to the letter.",
        _broker("may be empty there"),
        "https://login.example.org",
    ),
    "sasl.oauthbearer.expected.audience": Reference(
        "Required with OAUTHBEARER: a token for another service of the same issuer is not one for Kafka.",
        _broker("may be empty there"),
        "kafka",
    ),
    "sasl.oauthbearer.sub.claim.name": Reference(
        "Its text is the user's name, as in User:name.", _broker(), "preferred_username"
    ),
    "sasl.oauthbearer.clock.skew.seconds": Reference("It counts for exp, nbf and iat.", _broker(), "10"),
    "oauthbearer.sasl.jaas.config": Reference(
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'ssl.truststore.location="/etc/forebay/login-ca.pem"; without it the certificate must be signed by one of the '
        "system's.",
        _broker(),
        "${file:/etc/forebay/issuer.properties:sasl.jaas.config}",
    ),
    "ssl.principal.mapping.rules": Reference(
        "For SSL with client.authentication=terminate. The first of the rules RULE:pattern/replacement/ that matches "
        "the whole distinguished name (RFC 2253) says what its owner is called, with L or U behind it in lower or "
        "upper case; DEFAULT: as it stands. Without a rule for it a client is refused. Patterns are Java's; those that "
        "mean something else to Python are refused.",
        _broker(),
        "RULE:^CN=([^,]*),.*$/$1/L,DEFAULT",
    ),
    "connections.max.reauth.ms": Reference(
        "A client that has not logged in again by then is closed at its next request (KIP-368). Clients that are too "
        "old to be told of it are closed, too, and come again.",
        _broker(),
        "3600000",
    ),
    "sasl.server.max.receive.size": Reference("Before the login, and during the next one.", _broker()),
    "ssl.client.auth": Reference(
        "required: clients without a certificate are refused. requested: they are let in, but an invalid certificate "
        "is refused. Both need ssl.truststore.location.",
        _broker(),
        "required",
    ),
    "ssl.keystore.location": Reference(
        "It, or ssl.keystore.certificate.chain, is required for SSL. One file with private key and certificate chain, "
        "as brokers take it with ssl.keystore.type=PEM; nobody else may read it. A JKS or PKCS12 file is refused with "
        "the command that converts it.",
        _broker("always PEM"),
        "/etc/forebay/tls/keystore.pem",
    ),
    "ssl.keystore.certificate.chain": Reference("Needs ssl.keystore.key.", _broker(), "${env:KAFKA}"),
    "ssl.keystore.key": Reference(f"In PKCS8 form. {_SECRET}", _broker(), "${env:KAFKA}"),
    "ssl.key.password": Reference(_SECRET, _broker(), "${file:/etc/forebay/tls/secrets.properties:key.password}"),
    "ssl.truststore.location": Reference(
        "Nobody is trusted without it.", _broker("always PEM, and no default"), "/etc/forebay/tls/clients-ca.pem"
    ),
    "ssl.truststore.certificates": Reference(
        "Usually a reference, such as ${file:path:key}.", _broker("no default"), "${env:KAFKA}"
    ),
    "ssl.enabled.protocols": Reference("Older versions are not offered at all.", _broker(), "TLSv1.3"),
    "ssl.cipher.suites": Reference(_SUITES, _broker("default Java's choice"), _SUITES_EXAMPLE),
}
"""What follows listener.name.<name>. → its reference, in the order of ListenerSettings."""
