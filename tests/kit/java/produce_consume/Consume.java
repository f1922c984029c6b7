package kit;

import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads `count` records of `topic` as a member of `group`, commits, and prints each. Fails after `timeout_ms`. */
final class Consume implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) throws Exception {
        long count = arguments.number("count", 0);
        long deadline = System.nanoTime() + arguments.number("timeout_ms", 30_000) * 1_000_000;
        Properties properties = arguments.properties();
        properties.put("group.id", arguments.get("group"));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Collections.singletonList(arguments.get("topic")));
            long seen = 0;
            while (seen < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("timed out with " + seen + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : poll(consumer)) {
                    out.println(line(record));
                    seen++;
                }
            }
            consumer.commitSync();
        }
    }

    /** poll(Duration) came with 2.0, and poll(long) left with 4.0. */
    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(Consumer<byte[], byte[]> consumer) throws Exception {
        Method poll;
        Object timeout;
        try {
            poll = Consumer.class.getMethod("poll", Duration.class);
            timeout = Duration.ofMillis(200);
        } catch (NoSuchMethodException old) {
            poll = Consumer.class.getMethod("poll", long.class);
            timeout = 200L;
        }
        return (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, timeout);
    }

    static String line(ConsumerRecord<byte[], byte[]> record) {
        List<Map<String, Object>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Json.map("key", header.key(), "value", header.value()));
        }
        return Json.of(
            "topic", record.topic(),
            "partition", record.partition(),
            "offset", record.offset(),
            "timestamp", record.timestamp(),
            "key", record.key(),
            "value", record.value(),
            "headers", headers);
    }
}
