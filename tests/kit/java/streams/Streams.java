package kit;

import java.io.PrintWriter;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.state.Stores;

/**
 * An application of Kafka Streams: reads `count` records of `in`, and writes each value to `out`, to partition 0 of
 * `pinned`, both without a key, and to `counts` how many with its last character there were so far. Ends, and commits,
 * when the last of these is on its way.
 *
 * <p>Kafka 2.8 asks a partitioner for a partition, Kafka 4 for partitions: this one knows both.
 */
final class Streams implements Session.Verb {
    private static final class First implements StreamPartitioner<Object, Object> {
        public Integer partition(String topic, Object key, Object value, int partitions) {
            return 0;
        }

        public Optional<Set<Integer>> partitions(String topic, Object key, Object value, int partitions) {
            return Optional.of(Set.of(0));
        }
    }

    @Override
    public void run(Arguments arguments, PrintWriter out) throws Exception {
        CountDownLatch left = new CountDownLatch((int) arguments.number("count", 0));
        Properties properties = arguments.properties();
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (KafkaStreams streams = new KafkaStreams(topology(arguments, left).build(), properties)) {
            streams.setUncaughtExceptionHandler(error -> {
                failure.set(error);
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
                    .SHUTDOWN_CLIENT;
            });
            streams.start();
            boolean done = left.await(arguments.number("timeout_ms", 60_000), TimeUnit.MILLISECONDS);
            if (failure.get() != null) {
                throw new IllegalStateException(failure.get().toString(), failure.get());
            }
            if (!done) {
                throw new IllegalStateException("timed out with " + left.getCount() + " records left");
            }
        }
    }

    private static StreamsBuilder topology(Arguments arguments, CountDownLatch left) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], String> read = builder.stream(List.of(arguments.get("in")));
        read.to(arguments.get("out"));
        read.to(arguments.get("pinned"), Produced.streamPartitioner(new First()));
        read.selectKey((key, value) -> value.substring(value.length() - 1).getBytes())
            .groupByKey()
            .count(Materialized.<byte[], Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.Long()))
            .toStream()
            .peek((key, count) -> left.countDown())
            .to(arguments.get("counts"), Produced.with(Serdes.ByteArray(), Serdes.Long()));
        return builder;
    }
}
