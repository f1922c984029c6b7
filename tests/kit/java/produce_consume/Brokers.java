package kit;

import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The addresses at which this client believes the replicas of `topic` to be. */
final class Brokers implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) {
        TreeSet<String> addresses = new TreeSet<>();
        try (KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(arguments.properties(), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (PartitionInfo partition : producer.partitionsFor(arguments.get("topic"))) {
                List<Node> nodes = new ArrayList<>(Arrays.asList(partition.replicas()));
                nodes.add(partition.leader());
                nodes.forEach(node -> addresses.add(node.host() + ":" + node.port()));
            }
        }
        out.println(Json.of("addresses", addresses));
    }
}
