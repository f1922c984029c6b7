package kit;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/** KafkaProducer, idempotent by default as it is since 3.0, and otherwise. */
final class ParityProducer {
    private ParityProducer() {}

    static Map<String, Parity.Scenario> scenarios() {
        Map<String, Parity.Scenario> all = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            all.put("idempotent-" + codec, a -> keyed(a, Map.of("compression.type", codec)));
            all.put("plain-" + codec, a -> keyed(a, plain(codec)));
        }
        all.put("acks-0", a -> {
            keyed(a, Map.of("enable.idempotence", "false", "acks", "0"));
            return ParityConsumer.everything(a, 40, "read_uncommitted");
        });
        all.put("without-keys", ParityProducer::withoutKeys);
        all.put("partitions", ParityProducer::partitions);
        all.put("transactions", ParityProducer::transactions);
        all.put("offsets-in-a-transaction", ParityProducer::offsetsInATransaction);
        all.put("fenced", ParityProducer::fenced);
        all.put("refused", ParityProducer::refused);
        return all;
    }

    static KafkaProducer<String, String> producer(Arguments arguments, Map<String, String> settings) {
        Properties properties = arguments.properties();
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /**
     * 30 records with keys over the partitions in turn, timestamps 1000 to 1029: one batch each, sent at the end, so that
     * logs are of the same size every time.
     */
    static void fill(Arguments arguments, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(arguments, Map.of("linger.ms", "60000"))) {
            for (int seq = 0; seq < 30; seq++) {
                producer.send(new ProducerRecord<>(topic, seq % 3, 1000L + seq, "key-" + seq, "value-" + seq));
            }
        }
    }

    private static Map<String, String> plain(String codec) {
        return Map.of("enable.idempotence", "false", "compression.type", codec, "acks", "1");
    }

    private static Object keyed(Arguments arguments, Map<String, String> settings) throws Exception {
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        for (int seq = 0; seq < 40; seq++) {
            ProducerRecord<String, String> record =
                new ProducerRecord<>(arguments.get("topic"), null, 1000L + seq, "key-" + seq % 7, "value-" + seq);
            record.headers().add("name", "value".getBytes(StandardCharsets.UTF_8)).add("none", null);
            records.add(record);
        }
        List<Object> told = send(arguments, settings, records);
        return List.of(told, ParityConsumer.everything(arguments, 40, "read_uncommitted"));
    }

    /** Where they land is the partitioner's choice, and may be Forebay's: each arrives once. */
    private static Object withoutKeys(Arguments arguments) throws Exception {
        for (String idempotent : List.of("true", "false")) {
            List<ProducerRecord<String, String>> records = new ArrayList<>();
            for (int seq = 0; seq < 40; seq++) {
                records.add(new ProducerRecord<>(arguments.get("topic"), null, idempotent + seq));
            }
            for (Object told : send(arguments, Map.of("enable.idempotence", idempotent), records)) {
                if (told instanceof String) {
                    throw new IllegalStateException(told.toString());
                }
            }
        }
        List<String> values = new ArrayList<>();
        ParityConsumer.read(arguments, 80, "read_uncommitted").forEach(record -> values.add(record.value()));
        return Parity.sorted(values);
    }

    private static Object partitions(Arguments arguments) {
        try (KafkaProducer<String, String> producer = producer(arguments, Map.of())) {
            List<String> partitions = new ArrayList<>();
            for (PartitionInfo each : producer.partitionsFor(arguments.get("topic"))) {
                partitions.add(each.partition() + " " + each.leader() + " " + List.of(each.replicas()));
            }
            return Parity.sorted(partitions);
        }
    }

    private static Object transactions(Arguments arguments) throws Exception {
        List<Object> told = new ArrayList<>();
        String id = arguments.get("prefix") + "transaction";
        try (KafkaProducer<String, String> producer = producer(arguments, Map.of("transactional.id", id))) {
            producer.initTransactions();
            for (String run : List.of("first", "aborted", "last")) {
                producer.beginTransaction();
                List<ProducerRecord<String, String>> records = new ArrayList<>();
                for (int seq = 0; seq < 9; seq++) {
                    records.add(new ProducerRecord<>(arguments.get("topic"), seq % 3, 1000L, null, run + seq));
                }
                told.add(send(producer, records));
                if (run.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        told.add(ParityConsumer.everything(arguments, 18, "read_committed"));
        told.add(ParityConsumer.everything(arguments, 27, "read_uncommitted"));
        return told;
    }

    private static Object offsetsInATransaction(Arguments arguments) throws Exception {
        String topic = arguments.get("topic");
        fill(arguments, topic);
        String id = arguments.get("prefix") + "transaction";
        List<Object> told = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(arguments, Map.of("transactional.id", id));
            KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, Map.of())) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            ParityConsumer.poll(consumer, 30);
            for (boolean commit : new boolean[] {false, true}) {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets =
                    Map.of(new TopicPartition(topic, 1), new OffsetAndMetadata(commit ? 7 : 3, "told"));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                told.add(Parity.byName(consumer.committed(offsets.keySet())).toString());
            }
        }
        return told;
    }

    private static Object fenced(Arguments arguments) throws Exception {
        Map<String, String> settings = Map.of("transactional.id", arguments.get("prefix") + "transaction");
        try (KafkaProducer<String, String> first = producer(arguments, settings);
            KafkaProducer<String, String> second = producer(arguments, settings)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(arguments.get("topic"), 0, "key", "fenced")).get();
            second.initTransactions();
            return Parity.told(() -> {
                first.commitTransaction();
                return "committed";
            });
        }
    }

    private static Object refused(Arguments arguments) throws Exception {
        List<Object> told = new ArrayList<>();
        for (String idempotent : List.of("true", "false")) {
            Map<String, String> settings = Map.of("enable.idempotence", idempotent, "max.request.size", "4000000");
            try (KafkaProducer<String, String> producer = producer(arguments, settings)) {
                String large = "x".repeat(2_000_000);
                told.add(send(producer, List.of(new ProducerRecord<>(arguments.get("topic"), 0, "key", large))));
                told.add(send(producer, List.of(new ProducerRecord<>(arguments.get("topic"), null, large))));
                told.add(Parity.told(() -> producer.send(new ProducerRecord<>("not a topic", "key", "value")).get()));
            }
        }
        return told;
    }

    private static List<Object> send(
        Arguments arguments, Map<String, String> settings, List<ProducerRecord<String, String>> records) {
        try (KafkaProducer<String, String> producer = producer(arguments, settings)) {
            return send(producer, records);
        }
    }

    /** Of each record partition, offset and the sizes that were told, or the error's class. */
    private static List<Object> send(
        KafkaProducer<String, String> producer, List<ProducerRecord<String, String>> records) {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        records.forEach(record -> futures.add(producer.send(record)));
        List<Object> told = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            told.add(Parity.told(() -> {
                RecordMetadata metadata = future.get();
                Object offset = metadata.hasOffset() ? metadata.offset() : null;
                Object value = metadata.serializedValueSize();
                return Json.map("partition", metadata.partition(), "offset", offset, "size", value);
            }));
        }
        return told;
    }
}
