package kit;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What Kafka 4 added: patterns that brokers match, share groups, lists of groups of every kind and of resources. */
final class ParityNewest {
    private ParityNewest() {}

    static Map<String, Parity.Scenario> scenarios() {
        Map<String, Parity.Scenario> all = new LinkedHashMap<>();
        all.put("pattern-by-brokers", ParityNewest::patternByBrokers);
        all.put("share-group", ParityAdmin.with(ParityNewest::shareGroup));
        all.put("list-groups", ParityAdmin.with(ParityNewest::listGroups));
        all.put("config-resources", ParityAdmin.with(ParityNewest::configResources));
        all.put("streams-groups", ParityAdmin.with((admin, a) ->
            Parity.told(admin.describeStreamsGroups(Set.of(a.get("prefix") + "streams")).all())));
        return all;
    }

    private static Object patternByBrokers(Arguments arguments) throws Exception {
        ParityConsumer.makeTopics(arguments);
        Map<String, String> settings = Map.of("group.protocol", "consumer");
        try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, settings)) {
            consumer.subscribe(new SubscriptionPattern(arguments.get("prefix").replace(".", "\\.") + "wanted-.*"));
            return ParityConsumer.values(ParityConsumer.poll(consumer, 60));
        }
    }

    private static Object shareGroup(Admin admin, Arguments arguments) throws Exception {
        String group = arguments.get("prefix") + "group";
        List<Object> told = new ArrayList<>();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        var earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"),
            AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        ParityProducer.fill(arguments, arguments.get("topic"));
        Properties properties = arguments.properties();
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments.get("topic")));
            List<String> accepted = new ArrayList<>();
            int released = 0;
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (accepted.size() < 30 && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    boolean again = record.deliveryCount().get() == 1 && record.offset() == 3;
                    consumer.acknowledge(record, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (again) {
                        released++;
                    } else {
                        accepted.add(record.key() + " " + record.value());
                    }
                }
                consumer.commitSync().forEach((partition, error) -> error.ifPresent(each -> told.add(each.toString())));
            }
            told.add(released);
            told.add(Parity.sorted(accepted));
            var described = admin.describeShareGroups(Set.of(group)).all().get().get(group);
            told.add(described.groupState() + " " + described.members().size() + " "
                + (described.coordinator().id() >= 0));
        }
        // How far the group has come is written by the brokers at their own pace; for which partitions is not.
        told.add(Parity.sorted(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
            .partitionsToOffsetInfo(group).get().keySet()));
        told.add(Parity.until(() -> admin.deleteShareGroups(List.of(group)).all().get(),
            answer -> answer.equals("done")));
        return told;
    }

    private static Object listGroups(Admin admin, Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, String> settings =
                Map.of("group.protocol", protocol, "group.id", arguments.get("prefix") + protocol);
            try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, settings)) {
                consumer.subscribe(List.of(arguments.get("topic")));
                ParityConsumer.poll(consumer, 30);
                consumer.commitSync();
            }
        }
        List<Object> told = new ArrayList<>();
        told.add(Parity.sorted(admin.listGroups(new ListGroupsOptions()).all().get().stream()
            .filter(each -> each.groupId().startsWith(arguments.get("prefix")))
            .map(each -> each.groupId() + " " + each.type() + " " + each.protocol()).collect(Collectors.toList())));
        String classic = arguments.get("prefix") + "classic";
        told.add(Parity.told(() ->
            admin.describeClassicGroups(Set.of(classic)).all().get().get(classic).state().toString()));
        told.add(Parity.told(() -> Parity.byName(admin.listConsumerGroupOffsets(classic)
            .partitionsToOffsetAndMetadata().get()).toString()));
        return told;
    }

    private static Object configResources(Admin admin, Arguments arguments) throws Exception {
        var types = Set.of(ConfigResource.Type.BROKER, ConfigResource.Type.TOPIC);
        return List.of(
            Parity.sorted(admin.listConfigResources(types,
                new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                .all().get().stream().map(each -> each.type() + " " + each.name())
                .filter(each -> each.startsWith("BROKER") || each.endsWith(arguments.get("topic")))
                .collect(Collectors.toList())),
            Parity.told(admin.listClientMetricsResources().all()));
    }
}
