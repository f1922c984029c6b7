package kit;

import java.io.File;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produce.java for clients that know neither timestamps nor headers, in words that 0.8.2 understands. Says the same.
 *
 * topic, name, count, rate, keys=keyed|null|mixed, key_count, size, contents=text|mixed (with null and empty values),
 * until, live, prop.*
 */
final class AncientProduce implements Session.Verb {
    private static final int ANSWER_SECONDS = 80;

    @Override
    public void run(Arguments arguments, final PrintWriter out) throws Exception {
        int count = (int) arguments.number("count", 0);
        long rate = arguments.number("rate", 0);
        final long[] latencies = new long[count];
        Arrays.fill(latencies, -1);
        final Semaphore answered = new Semaphore(0);
        final boolean live = arguments.is("live");
        File until = arguments.has("until") ? new File(arguments.get("until")) : null;
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(arguments.properties(), new ByteArraySerializer(), new ByteArraySerializer());
        long start;
        try {
            out.println(Json.of("partitions", producer.partitionsFor(arguments.get("topic")).size()));
            start = System.nanoTime();
            int total = 0;
            for (; total < count && (until == null || !until.exists()); total++) {
                if (rate > 0) {
                    Pace.waitUntil(start + total * 1_000_000_000L / rate);
                }
                final int seq = total;
                final long sent = System.nanoTime();
                producer.send(record(arguments, seq), new Callback() {
                    @Override
                    public void onCompletion(RecordMetadata metadata, Exception error) {
                        if (error != null) {
                            out.println(Json.of("seq", seq, "error", error.toString()));
                        } else {
                            latencies[seq] = System.nanoTime() - sent;
                            out.println(Json.of("seq", seq, "partition", metadata.partition(), "offset", metadata.offset()));
                        }
                        if (live) {
                            out.flush();
                        }
                        answered.release();
                    }
                });
            }
            answered.tryAcquire(total, ANSWER_SECONDS, TimeUnit.SECONDS);
            // It may be told to send once only: clients before 1.0 do not count what they send again.
            out.println(Json.of("sent", total, "retries", 0));
            out.println(Json.of("stats", Latencies.stats(latencies, System.nanoTime() - start)));
        } finally {
            producer.close();
        }
    }

    private static ProducerRecord<byte[], byte[]> record(Arguments arguments, int seq) {
        String keys = arguments.get("keys", "null");
        boolean keyed = keys.equals("keyed") || (keys.equals("mixed") && seq % 2 == 0);
        byte[] key = keyed ? utf8("key-" + seq % arguments.number("key_count", 1)) : null;
        return new ProducerRecord<>(arguments.get("topic"), key, value(arguments, seq));
    }

    private static byte[] value(Arguments arguments, int seq) {
        boolean mixed = arguments.get("contents", "text").equals("mixed");
        if (mixed && seq % 3 != 0) {
            return seq % 3 == 1 ? null : new byte[0];
        }
        StringBuilder value = new StringBuilder(arguments.get("name")).append('-').append(seq);
        for (long size = arguments.number("size", 0); value.length() < size; ) {
            value.append('.');
        }
        return utf8(value.toString());
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
