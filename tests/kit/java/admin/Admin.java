package kit;

import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** One admin operation, named by `op`, on the thing named by `name`; prints {"result": …}. */
final class Admin implements Session.Verb {
    @Override
    public void run(Arguments arguments, PrintWriter out) throws Exception {
        Properties properties = arguments.properties();
        try (AdminClient admin = AdminClient.create(properties)) {
            out.println(Json.of("result", result(admin, arguments)));
        }
    }

    private static Object result(AdminClient admin, Arguments arguments) throws Exception {
        String name = arguments.get("name", "");
        Collection<String> names = Collections.singleton(name);
        switch (arguments.get("op")) {
            case "create_topic":
                int partitions = (int) arguments.number("partitions", 1);
                short replicas = (short) arguments.number("replicas", 1);
                admin.createTopics(Collections.singleton(new NewTopic(name, partitions, replicas))).all().get();
                return null;
            case "create_partitions":
                NewPartitions total = NewPartitions.increaseTo((int) arguments.number("partitions", 1));
                admin.createPartitions(Collections.singletonMap(name, total)).all().get();
                return null;
            case "list_topics":
                return new TreeSet<>(admin.listTopics().names().get());
            case "describe_topic":
                return topic(admin.describeTopics(names).allTopicNames().get().get(name));
            case "delete_topic":
                admin.deleteTopics(names).all().get();
                return null;
            case "describe_configs":
                return configs(admin, name);
            case "alter_config":
                AlterConfigOp set =
                    new AlterConfigOp(
                        new ConfigEntry(arguments.get("key"), arguments.get("value")), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(topicResource(name), List.of(set))).all().get();
                return null;
            case "list_groups":
                return admin.listConsumerGroups().all().get().stream()
                    .map(group -> group.groupId()).collect(Collectors.toCollection(TreeSet::new));
            case "describe_group":
                return group(admin.describeConsumerGroups(names).all().get().get(name));
            case "group_offsets":
                return offsets(admin, name);
            case "delete_group":
                admin.deleteConsumerGroups(names).all().get();
                return null;
            case "describe_cluster":
                return cluster(admin.describeCluster());
            default:
                throw new IllegalArgumentException("unknown op " + arguments.get("op"));
        }
    }

    private static ConfigResource topicResource(String name) {
        return new ConfigResource(ConfigResource.Type.TOPIC, name);
    }

    private static Object configs(AdminClient admin, String topic) throws Exception {
        ConfigResource resource = topicResource(topic);
        Map<String, String> configs = new TreeMap<>();
        admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).entries()
            .forEach(entry -> configs.put(entry.name(), entry.value()));
        return configs;
    }

    private static Object topic(TopicDescription topic) {
        List<Object> partitions = new ArrayList<>();
        topic.partitions().forEach(
            partition -> partitions.add(
                Json.map(
                    "partition", partition.partition(),
                    "leader", node(partition.leader()),
                    "replicas", nodes(partition.replicas()))));
        return Json.map("name", topic.name(), "partitions", partitions);
    }

    private static Object group(ConsumerGroupDescription group) {
        return Json.map(
            "group", group.groupId(),
            "members", group.members().size(),
            "coordinator", node(group.coordinator()));
    }

    private static Object offsets(AdminClient admin, String group) throws Exception {
        Map<String, Object> offsets = new TreeMap<>();
        Map<TopicPartition, OffsetAndMetadata> committed =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        committed.forEach((partition, offset) -> offsets.put(partition.toString(), offset.offset()));
        return offsets;
    }

    private static Object cluster(DescribeClusterResult cluster) throws Exception {
        return Json.map(
            "id", cluster.clusterId().get(),
            "controller", node(cluster.controller().get()),
            "nodes", nodes(cluster.nodes().get()));
    }

    private static List<Object> nodes(Collection<Node> nodes) {
        return nodes.stream().map(Admin::node).collect(Collectors.toList());
    }

    private static Object node(Node node) {
        return Json.map("id", node.id(), "address", node.host() + ":" + node.port());
    }
}
