package kit;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** KafkaConsumer, in groups of both protocols and by assignment. */
final class ParityConsumer {
    private ParityConsumer() {}

    static Map<String, Parity.Scenario> scenarios() {
        Map<String, Parity.Scenario> all = new LinkedHashMap<>();
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, String> settings = Map.of("group.protocol", protocol);
            all.put("group-" + protocol, a -> group(a, settings));
            all.put("pattern-" + protocol, a -> pattern(a, settings));
            all.put("offsets-" + protocol, a -> offsets(a, settings));
        }
        String cooperative = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
        all.put("cooperative", a -> group(a, Map.of("partition.assignment.strategy", cooperative)));
        all.put("static-member", a -> group(a, Map.of("group.instance.id", "static")));
        all.put("out-of-range", ParityConsumer::outOfRange);
        all.put("list-topics", ParityConsumer::listTopics);
        return all;
    }

    static KafkaConsumer<String, String> consumer(Arguments arguments, Map<String, String> settings) {
        Properties properties = arguments.properties();
        properties.put("group.id", arguments.get("prefix") + "group");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> poll(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.nanoTime() + 90_000_000_000L;
        while (records.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(records.size() + " of " + count + " records");
            }
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    /** `count` records of the topic from its start, by partition and offset. */
    static List<ConsumerRecord<String, String>> read(Arguments arguments, int count, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(arguments, Map.of("isolation.level", isolation))) {
            consumer.assign(partitions(arguments));
            consumer.seekToBeginning(partitions(arguments));
            List<ConsumerRecord<String, String>> records = poll(consumer, count);
            records.sort((a, b) -> a.partition() != b.partition()
                ? a.partition() - b.partition() : Long.compare(a.offset(), b.offset()));
            return records;
        }
    }

    static List<String> everything(Arguments arguments, int count, String isolation) {
        return read(arguments, count, isolation).stream()
            .map(each -> each.partition() + " " + each.offset() + " " + each.timestamp() + " " + each.timestampType()
                + " " + each.key() + " " + each.value() + " " + each.headers())
            .collect(Collectors.toList());
    }

    static List<TopicPartition> partitions(Arguments arguments) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (int partition = 0; partition < 3; partition++) {
            partitions.add(new TopicPartition(arguments.get("topic"), partition));
        }
        return partitions;
    }

    /** Reads all, commits, leaves; the second time it goes on where it was. */
    private static Object group(Arguments arguments, Map<String, String> settings) throws Exception {
        List<Object> told = new ArrayList<>();
        for (int time = 0; time < 2; time++) {
            ParityProducer.fill(arguments, arguments.get("topic"));
            try (KafkaConsumer<String, String> consumer = consumer(arguments, settings)) {
                consumer.subscribe(List.of(arguments.get("topic")), new ConsumerRebalanceListener() {
                    @Override
                    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                        if (!partitions.isEmpty()) { // of KIP-848's members some are told so first, some are not
                            told.add("assigned " + Parity.sorted(partitions));
                        }
                    }

                    @Override
                    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                        if (!partitions.isEmpty()) {
                            told.add("revoked " + Parity.sorted(partitions));
                        }
                    }
                });
                told.add(values(poll(consumer, 30)));
                consumer.commitSync();
                told.add(consumer.groupMetadata().groupId());
                told.add(Parity.byName(consumer.committed(new java.util.HashSet<>(partitions(arguments)))).toString());
            }
        }
        return told;
    }

    private static Object pattern(Arguments arguments, Map<String, String> settings) throws Exception {
        makeTopics(arguments);
        try (KafkaConsumer<String, String> consumer = consumer(arguments, settings)) {
            consumer.subscribe(Pattern.compile(Pattern.quote(arguments.get("prefix") + "wanted-") + ".*"));
            return values(poll(consumer, 60));
        }
    }

    /** Two topics with 30 records each whose names go on with "wanted-", and one whose name does not. */
    static void makeTopics(Arguments arguments) throws Exception {
        List<String> names = List.of("wanted-1", "wanted-2", "other");
        try (Admin admin = Admin.create(arguments.properties())) {
            List<NewTopic> topics = names.stream()
                .map(name -> new NewTopic(arguments.get("prefix") + name, 3, (short) 1)).collect(Collectors.toList());
            admin.createTopics(topics).all().get();
        }
        for (String name : names) {
            ParityProducer.fill(arguments, arguments.get("prefix") + name);
        }
    }

    static List<Object> values(List<ConsumerRecord<String, String>> records) {
        return Parity.sorted(records.stream()
            .map(each -> each.topic() + " " + each.key() + " " + each.value()).collect(Collectors.toList()));
    }

    private static Object offsets(Arguments arguments, Map<String, String> settings) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        List<TopicPartition> partitions = partitions(arguments);
        TopicPartition first = partitions.get(0);
        List<Object> told = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(arguments, settings)) {
            told.add(Parity.byName(consumer.beginningOffsets(partitions)));
            told.add(Parity.byName(consumer.endOffsets(partitions)));
            Map<TopicPartition, Long> times = new HashMap<>();
            partitions.forEach(partition -> times.put(partition, 1015L));
            told.add(Parity.byName(consumer.offsetsForTimes(times)).toString());
            // 3.9 has no answer for its new consumers where there is no such record.
            told.add(Parity.told(() -> consumer.offsetsForTimes(Map.of(first, 5000L)).toString()));
            consumer.assign(partitions);
            consumer.pause(List.of(first));
            told.add(values(poll(consumer, 20)));
            told.add(consumer.paused().toString());
            consumer.resume(List.of(first));
            consumer.seek(first, 8);
            told.add(values(poll(consumer, 2)));
            told.add(consumer.position(first));
            told.add(consumer.currentLag(first).getAsLong());
            consumer.seekToEnd(List.of(first));
            told.add(consumer.position(first));
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(5, "said")));
            consumer.commitAsync(Map.of(partitions.get(1), new OffsetAndMetadata(6)), null);
            Parity.until(
                () -> consumer.committed(Collections.singleton(partitions.get(1))).get(partitions.get(1)),
                answer -> answer instanceof OffsetAndMetadata);
            told.add(Parity.byName(consumer.committed(new java.util.HashSet<>(partitions))).toString());
        }
        return told;
    }

    private static Object outOfRange(Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        try (KafkaConsumer<String, String> consumer = consumer(arguments, Map.of("auto.offset.reset", "none"))) {
            consumer.assign(partitions(arguments));
            Object unset = Parity.told(() -> poll(consumer, 1).size());
            consumer.seekToBeginning(partitions(arguments));
            consumer.seek(partitions(arguments).get(0), 1_000_000);
            return List.of(unset, Parity.told(() -> poll(consumer, 100).size()));
        }
    }

    private static Object listTopics(Arguments arguments) {
        try (KafkaConsumer<String, String> consumer = consumer(arguments, Map.of())) {
            List<String> own = consumer.listTopics().keySet().stream()
                .filter(name -> name.startsWith(arguments.get("prefix"))).collect(Collectors.toList());
            return List.of(own, Parity.sorted(consumer.partitionsFor(arguments.get("topic"))));
        }
    }
}
