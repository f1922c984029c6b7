package kit;

import java.io.PrintWriter;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads `count` records of `topic` as a member of the share group `group` (KIP-932), acknowledging each. */
final class ShareConsume implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) throws Exception {
        startAtEarliest(arguments);
        long count = arguments.number("count", 0);
        long deadline = System.nanoTime() + arguments.number("timeout_ms", 30_000) * 1_000_000;
        Properties properties = arguments.properties();
        properties.put("group.id", arguments.get("group"));
        try (KafkaShareConsumer<byte[], byte[]> consumer =
            new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Collections.singletonList(arguments.get("topic")));
            for (long seen = 0; seen < count; ) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("timed out with " + seen + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    out.println(Consume.line(record));
                    seen++;
                }
                consumer.commitSync();
            }
        }
    }

    /** Where a share group starts is a setting of the group, kept by the brokers; by default it is the end. */
    private static void startAtEarliest(Arguments arguments) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, arguments.get("group"));
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("bootstrap"));
        try (AdminClient admin = AdminClient.create(properties)) {
            AlterConfigOp set = new AlterConfigOp(earliest, AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get();
        }
    }
}
