import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Many producers, each of which sends one record to each of many topics, in an order of its own, all at once.
 *
 * Arguments: bootstrap servers, producers, topics, the topics' prefix. Prints one line of JSON: seconds from the start
 * until the last record was acknowledged, and latencies in ms from `send` (which waits for metadata) to there.
 */
public class ManyTopics {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        int producers = Integer.parseInt(arguments[1]);
        int topics = Integer.parseInt(arguments[2]);
        String prefix = arguments[3];
        double[] latencies = new double[producers * topics];
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch ready = new CountDownLatch(producers);
        CountDownLatch start = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < producers; each++) {
            int number = each;
            Thread thread = new Thread(() -> {
                Properties props = new Properties();
                props.put("bootstrap.servers", bootstrap);
                props.put("acks", "1");
                props.put("max.block.ms", "600000");
                props.put("request.timeout.ms", "300000");
                props.put("delivery.timeout.ms", "600000");
                props.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
                props.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
                List<Integer> order = new ArrayList<>();
                for (int topic = 0; topic < topics; topic++) {
                    order.add(topic);
                }
                Collections.shuffle(order, new Random(number));
                try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(props)) {
                    ready.countDown();
                    start.await();
                    for (int topic : order) {
                        long sent = System.nanoTime();
                        int place = number * topics + topic;
                        producer.send(new ProducerRecord<>(prefix + topic, new byte[100]), (metadata, error) -> {
                            latencies[place] = (System.nanoTime() - sent) / 1e6;
                            if (error != null) {
                                failed.incrementAndGet();
                            }
                        });
                    }
                } catch (Exception error) {
                    failed.incrementAndGet();
                }
            });
            thread.start();
            threads.add(thread);
        }
        ready.await();
        long began = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        Arrays.sort(latencies);
        System.out.printf(
            "{\"seconds\": %.3f, \"p50\": %.3f, \"p99\": %.3f, \"longest\": %.3f, \"failed\": %d}%n",
            seconds,
            latencies[latencies.length / 2],
            latencies[(int) (0.99 * (latencies.length - 1))],
            latencies[latencies.length - 1],
            failed.get());
    }
}
