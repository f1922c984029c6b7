package kit;

import java.io.File;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends `count` records that are known from their number alone (spec.py makes the same), and says of each, in the
 * order in which the answers came, which partition and offset it was told, or the error; then the latency.
 *
 * topic, name, count, keys=keyed|null|mixed, key_count, size, headers, null_header, timestamp_base, partition, transactional, abort,
 * rate (records a second, 0: as fast as it goes), until (a file: once it exists no more is sent), live (each answer is
 * written out at once), prop.*
 */
final class Produce implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) {
        int count = (int) arguments.number("count", 0);
        long rate = arguments.number("rate", 0);
        long[] latencies = new long[count];
        Arrays.fill(latencies, -1);
        boolean transactional = arguments.is("transactional");
        Properties properties = arguments.properties();
        long start;
        try (KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            // The first send waits for metadata; that is not the records' latency.
            int partitions = producer.partitionsFor(arguments.get("topic")).size();
            out.println(Json.of("partitions", partitions));
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            File until = arguments.has("until") ? new File(arguments.get("until")) : null;
            start = System.nanoTime();
            int sent = 0;
            for (; sent < count && (until == null || !until.exists()); sent++) {
                if (rate > 0) {
                    Pace.waitUntil(start + sent * 1_000_000_000L / rate);
                }
                send(producer, arguments, sent, latencies, out);
            }
            producer.flush();
            out.println(Json.of("sent", sent, "retries", total(producer, "record-retry-total")));
            if (transactional && arguments.is("abort")) {
                producer.abortTransaction();
            } else if (transactional) {
                producer.commitTransaction();
            }
        }
        out.println(Json.of("stats", Latencies.stats(latencies, System.nanoTime() - start)));
    }

    /** A count of the client's own, over all topics. */
    private static long total(KafkaProducer<byte[], byte[]> producer, String name) {
        return producer.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals(name))
            .filter(metric -> metric.metricName().group().equals("producer-metrics"))
            .mapToLong(metric -> (long) ((Number) metric.metricValue()).doubleValue())
            .sum();
    }

    private static void send(
        KafkaProducer<byte[], byte[]> producer, Arguments arguments, int seq, long[] latencies, PrintWriter out) {
        ProducerRecord<byte[], byte[]> record = record(arguments, seq);
        boolean live = arguments.is("live");
        long sent = System.nanoTime();
        producer.send(record, (metadata, error) -> {
            if (error != null) {
                out.println(Json.of("seq", seq, "error", error.toString()));
            } else {
                latencies[seq] = System.nanoTime() - sent;
                out.println(acknowledgement(seq, metadata));
            }
            if (live) {
                out.flush();
            }
        });
    }

    private static String acknowledgement(int seq, RecordMetadata metadata) {
        return Json.of(
            "seq", seq,
            "partition", metadata.partition(),
            "offset", metadata.hasOffset() ? metadata.offset() : -1,
            "timestamp", metadata.timestamp());
    }

    private static ProducerRecord<byte[], byte[]> record(Arguments arguments, int seq) {
        String name = arguments.get("name");
        StringBuilder value = new StringBuilder(name).append('-').append(seq);
        for (long size = arguments.number("size", 0); value.length() < size; ) {
            value.append('.');
        }
        String keys = arguments.get("keys", "null");
        boolean keyed = keys.equals("keyed") || (keys.equals("mixed") && seq % 2 == 0);
        String key = keyed ? "key-" + seq % arguments.number("key_count", 1) : null;
        Integer partition = arguments.has("partition") ? (int) arguments.number("partition", 0) : null;
        Long timestamp = arguments.has("timestamp_base") ? arguments.number("timestamp_base", 0) + seq : null;
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(
                arguments.get("topic"), partition, timestamp, key == null ? null : utf8(key), utf8(value.toString()));
        if (arguments.is("headers")) {
            Headers headers = record.headers();
            headers.add("seq", utf8(Integer.toString(seq)));
            headers.add("empty", new byte[0]);
            if (arguments.is("null_header")) {
                headers.add("none", null);
            }
            headers.add("seq", utf8(name));
        }
        return record;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
