package kit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/** Admin, as it was in 3.9 and still is. */
final class ParityAdmin {
    interface Asked {
        Object run(Admin admin, Arguments arguments) throws Exception;
    }

    private ParityAdmin() {}

    static Map<String, Parity.Scenario> scenarios() {
        Map<String, Parity.Scenario> all = new LinkedHashMap<>();
        all.put("topics", with(ParityAdmin::topics));
        all.put("cluster", with(ParityAdmin::cluster));
        all.put("configs", with(ParityAdmin::configs));
        all.put("groups", with(ParityAdmin::groups));
        all.put("group-offsets", with(ParityAdmin::groupOffsets));
        all.put("member-removed", with(ParityAdmin::memberRemoved));
        all.put("offsets", with(ParityAdmin::offsets));
        all.put("delete-records", with(ParityAdmin::deleteRecords));
        all.put("producers-and-transactions", with(ParityAdmin::producersAndTransactions));
        all.put("log-dirs", with(ParityAdmin::logDirs));
        all.put("features", with(ParityAdmin::features));
        all.put("quorum", with((admin, a) -> {
            var quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return quorum.voters().stream().map(voter -> voter.replicaId()).sorted().collect(Collectors.toList());
        }));
        all.put("reassignments", with(ParityAdmin::reassignments));
        all.put("elections", with(ParityAdmin::elections));
        all.put("acls", with(ParityAdmin::acls));
        all.put("quotas", with(ParityAdmin::quotas));
        all.put("scram", with(ParityAdmin::scram));
        all.put("delegation-tokens", with((admin, a) -> List.of(
            Parity.told(admin.createDelegationToken().delegationToken()),
            Parity.told(admin.describeDelegationToken().delegationTokens()))));
        return all;
    }

    static Parity.Scenario with(Asked asked) {
        return arguments -> {
            try (Admin admin = Admin.create(arguments.properties())) {
                return asked.run(admin, arguments);
            }
        };
    }

    static String address(Node node) {
        return node == null ? "none" : node.id() + " at " + node.host() + ":" + node.port();
    }

    private static Object describe(Admin admin, String topic) throws Exception {
        TopicDescription described = admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic);
        return described.partitions().stream()
            .map(each -> each.partition() + " " + address(each.leader()) + " " + each.replicas() + " " + each.isr())
            .collect(Collectors.toList());
    }

    private static Object topics(Admin admin, Arguments arguments) throws Exception {
        String topic = arguments.get("prefix") + "made";
        NewTopic created = new NewTopic(topic, Map.of(0, List.of(0, 1), 1, List.of(1, 2)));
        List<Object> told = new ArrayList<>();
        told.add(Parity.told(admin.createTopics(Set.of(created.configs(Map.of("retention.ms", "3600000")))).values()));
        told.add(Parity.told(admin.createTopics(Set.of(created)).values()));
        told.add(Parity.told(admin.createPartitions(Map.of(topic,
            NewPartitions.increaseTo(3, List.of(List.of(2, 0))))).values()));
        told.add(Parity.told(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).values()));
        // A broker that is busy may not know yet what was just made, and tells an error.
        told.add(Parity.until(
            () -> describe(admin, topic), answer -> answer instanceof List && ((List<?>) answer).size() == 3));
        told.add(Parity.until(() -> admin.listTopics().names().get().contains(topic), Boolean.TRUE::equals));
        told.add(Parity.told(admin.deleteTopics(Set.of(topic)).topicNameValues()));
        told.add(Parity.until(() -> describe(admin, topic), answer -> answer instanceof String));
        return told;
    }

    private static Object cluster(Admin admin, Arguments arguments) throws Exception {
        var cluster = admin.describeCluster();
        List<Object> nodes = Parity.sorted(
            cluster.nodes().get().stream().map(ParityAdmin::address).collect(Collectors.toList()));
        boolean controller = cluster.nodes().get().contains(cluster.controller().get());
        return List.of(cluster.clusterId().get(), nodes, controller);
    }

    private static Object configs(Admin admin, Arguments arguments) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, arguments.get("topic"));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource logger = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
        List<Object> told = new ArrayList<>();
        Map<String, Object> entries = new TreeMap<>();
        admin.describeConfigs(Set.of(topic)).all().get().get(topic).entries()
            .forEach(entry -> entries.put(entry.name(), entry.value() + " " + entry.source()));
        told.add(entries);
        var set = new AlterConfigOp(new ConfigEntry("max.message.bytes", "100000"), AlterConfigOp.OpType.SET);
        told.add(Parity.told(admin.incrementalAlterConfigs(Map.of(topic, List.of(set))).values()));
        told.add(Parity.until(
            () -> admin.describeConfigs(Set.of(topic)).all().get().get(topic).get("max.message.bytes").value(),
            "100000"::equals));
        var wrong = new AlterConfigOp(new ConfigEntry("max.message.bytes", "many"), AlterConfigOp.OpType.SET);
        told.add(Parity.told(admin.incrementalAlterConfigs(Map.of(topic, List.of(wrong))).values()));
        told.add(admin.describeConfigs(Set.of(broker)).all().get().get(broker).get("node.id").value());
        told.add(Parity.told(() -> admin.describeConfigs(Set.of(logger)).all().get().get(logger).entries().size() > 0));
        return told;
    }

    private static String readAll(Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, Map.of())) {
            consumer.subscribe(List.of(arguments.get("topic")));
            ParityConsumer.poll(consumer, 30);
            consumer.commitSync();
        }
        return arguments.get("prefix") + "group";
    }

    private static Object groups(Admin admin, Arguments arguments) throws Exception {
        List<Object> told = new ArrayList<>();
        String group = readAll(arguments);
        told.add(admin.listConsumerGroups().all().get().stream().filter(each -> each.groupId().equals(group))
            .map(each -> each.groupId() + " " + each.state()).collect(Collectors.toList()));
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, String> settings = Map.of("group.protocol", protocol, "client.id", "someone");
            try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, settings)) {
                consumer.subscribe(List.of(arguments.get("topic")));
                while (consumer.assignment().size() < 3) {
                    consumer.poll(java.time.Duration.ofMillis(100));
                }
                told.add(describeGroup(admin.describeConsumerGroups(Set.of(group)).all().get().get(group)));
                told.add(Parity.told(admin.deleteConsumerGroups(Set.of(group)).deletedGroups()));
            }
        }
        told.add(Parity.until(
            () -> admin.deleteConsumerGroups(Set.of(group)).all().get(), answer -> answer.equals("done")));
        told.add(Parity.told(admin.deleteConsumerGroups(Set.of(group)).deletedGroups()));
        return told;
    }

    private static Object describeGroup(ConsumerGroupDescription group) {
        List<String> members = new ArrayList<>();
        for (MemberDescription member : group.members()) {
            members.add(member.clientId() + " " + member.host() + " "
                + Parity.sorted(member.assignment().topicPartitions()));
        }
        return group.groupId() + " " + group.state() + " " + group.partitionAssignor() + " " + members + " "
            + (group.coordinator().id() >= 0) + " " + group.isSimpleConsumerGroup();
    }

    private static Object groupOffsets(Admin admin, Arguments arguments) throws Exception {
        List<Object> told = new ArrayList<>();
        String group = readAll(arguments);
        List<TopicPartition> partitions = ParityConsumer.partitions(arguments);
        Map<TopicPartition, OffsetAndMetadata> moved = Map.of(partitions.get(1), new OffsetAndMetadata(4, "moved"));
        told.add(Parity.told(admin.alterConsumerGroupOffsets(group, moved).all()));
        told.add(Parity.told(admin.deleteConsumerGroupOffsets(group, Set.of(partitions.get(2))).all()));
        told.add(Parity.byName(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()).toString());
        return told;
    }

    private static Object memberRemoved(Admin admin, Arguments arguments) throws Exception {
        Map<String, String> settings = Map.of("group.instance.id", "static");
        String group = arguments.get("prefix") + "group";
        try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, settings)) {
            consumer.subscribe(List.of(arguments.get("topic")));
            while (consumer.assignment().size() < 3) {
                consumer.poll(java.time.Duration.ofMillis(100));
            }
            Object removed =
                Parity.told(admin.removeMembersFromConsumerGroup(group,
                    new RemoveMembersFromConsumerGroupOptions()).all());
            return List.of(removed,
                admin.describeConsumerGroups(Set.of(group)).all().get().get(group).members().size());
        }
    }

    private static Object offsets(Admin admin, Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        List<Object> told = new ArrayList<>();
        List<OffsetSpec> specs = List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
            OffsetSpec.forTimestamp(1015), OffsetSpec.earliestLocal(), OffsetSpec.latestTiered());
        for (OffsetSpec spec : specs) {
            Map<TopicPartition, OffsetSpec> asked = new LinkedHashMap<>();
            ParityConsumer.partitions(arguments).forEach(partition -> asked.put(partition, spec));
            told.add(Parity.told(() -> {
                Map<TopicPartition, ListOffsetsResultInfo> answers = admin.listOffsets(asked).all().get();
                return Parity.byName(answers).toString();
            }));
        }
        return told;
    }

    private static Object deleteRecords(Admin admin, Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        Map<TopicPartition, RecordsToDelete> wanted = new LinkedHashMap<>();
        ParityConsumer.partitions(arguments).forEach(each -> wanted.put(each, RecordsToDelete.beforeOffset(5)));
        admin.deleteRecords(wanted).all().get();
        ParityConsumer.partitions(arguments).forEach(each -> wanted.put(each, RecordsToDelete.beforeOffset(50)));
        try (KafkaConsumer<String, String> consumer = ParityConsumer.consumer(arguments, Map.of())) {
            return List.of(
                Parity.told(admin.deleteRecords(wanted).all()),
                Parity.byName(consumer.beginningOffsets(ParityConsumer.partitions(arguments))));
        }
    }

    private static Object producersAndTransactions(Admin admin, Arguments arguments) throws Exception {
        List<Object> told = new ArrayList<>();
        String id = arguments.get("prefix") + "transaction";
        TopicPartition first = ParityConsumer.partitions(arguments).get(0);
        try (KafkaProducer<String, String> producer =
            ParityProducer.producer(arguments, Map.of("transactional.id", id))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(first.topic(), 0, "key", "value")).get();
            told.add(admin.listTransactions().all().get().stream().filter(each -> each.transactionalId().equals(id))
                .map(TransactionListing::state).map(Object::toString).collect(Collectors.toList()));
            var described = admin.describeTransactions(Set.of(id)).all().get().get(id);
            told.add(described.state() + " " + described.topicPartitions() + " " + (described.coordinatorId() >= 0));
            var producers = admin.describeProducers(Set.of(first)).all().get().get(first);
            for (ProducerState state : producers.activeProducers()) {
                told.add(state.producerEpoch() + " " + state.lastSequence() + " "
                    + state.currentTransactionStartOffset());
            }
            told.add(Parity.told(admin.fenceProducers(Set.of(id)).all()));
            told.add(Parity.told(() -> {
                producer.commitTransaction();
                return "committed";
            }));
        }
        return told;
    }

    private static Object logDirs(Admin admin, Arguments arguments) throws Exception {
        ParityProducer.fill(arguments, arguments.get("topic"));
        Map<String, Object> told = new TreeMap<>();
        admin.describeLogDirs(List.of(0, 1, 2)).allDescriptions().get().forEach((broker, folders) -> folders.values()
            .forEach(folder -> folder.replicaInfos().forEach((partition, replica) -> {
                if (partition.topic().equals(arguments.get("topic"))) {
                    told.put(broker + " " + partition, replica.size() + " " + replica.isFuture());
                }
            })));
        TopicPartitionReplica replica = new TopicPartitionReplica(arguments.get("topic"), 0, 0);
        var ofReplica = admin.describeReplicaLogDirs(Set.of(replica)).all().get().get(replica);
        told.put("replica", ofReplica.getCurrentReplicaOffsetLag() + " " + ofReplica.getFutureReplicaLogDir());
        told.put("moved", Parity.told(admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all()));
        return told;
    }

    private static Object features(Admin admin, Arguments arguments) throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        FeatureUpdate update = new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE);
        return List.of(
            Parity.byName(features.finalizedFeatures()).toString(),
            Parity.byName(features.supportedFeatures()).toString(),
            Parity.told(admin.updateFeatures(Map.of("no.such.feature", update),
                new org.apache.kafka.clients.admin.UpdateFeaturesOptions()).all()));
    }

    private static Object reassignments(Admin admin, Arguments arguments) throws Exception {
        TopicPartition first = ParityConsumer.partitions(arguments).get(0);
        var moved = Optional.of(new NewPartitionReassignment(List.of(1, 2)));
        List<Object> told = new ArrayList<>();
        told.add(Parity.told(admin.alterPartitionReassignments(Map.of(first, moved)).all()));
        told.add(Parity.until(
            () -> admin.listPartitionReassignments(Set.of(first)).reassignments().get().size(),
            Integer.valueOf(0)::equals));
        told.add(Parity.told(admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all()));
        told.add(Parity.until(
            () -> admin.describeTopics(Set.of(first.topic())).allTopicNames().get().get(first.topic())
                .partitions().get(0).replicas().stream().map(ParityAdmin::address).collect(Collectors.toList()),
            answer -> answer instanceof List && ((List<?>) answer).size() == 2
                && answer.toString().startsWith("[1 at")));
        return told;
    }

    private static Object elections(Admin admin, Arguments arguments) throws Exception {
        Set<TopicPartition> first = Set.of(ParityConsumer.partitions(arguments).get(0));
        List<Object> told = new ArrayList<>();
        for (ElectionType type : ElectionType.values()) {
            Map<String, Object> answers = new TreeMap<>();
            admin.electLeaders(type, first).partitions().get().forEach((partition, error) ->
                answers.put(partition.toString(),
                    error.map(each -> each.getClass().getSimpleName()).orElse("elected")));
            told.add(answers);
        }
        return told;
    }

    private static Object acls(Admin admin, Arguments arguments) {
        AclBinding binding = new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, arguments.get("topic"), PatternType.LITERAL),
            new AccessControlEntry("User:someone", "*", AclOperation.READ, AclPermissionType.ALLOW));
        return List.of(
            Parity.told(admin.createAcls(Set.of(binding)).all()),
            Parity.told(admin.describeAcls(AclBindingFilter.ANY).values()),
            Parity.told(admin.deleteAcls(Set.of(AclBindingFilter.ANY)).all()));
    }

    private static Object quotas(Admin admin, Arguments arguments) throws Exception {
        String user = arguments.get("prefix") + "someone";
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        ClientQuotaFilter filter =
            ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)));
        List<Object> told = new ArrayList<>();
        for (Double limit : new Double[] {1e6, null}) {
            var change = new ClientQuotaAlteration(entity,
                Set.of(new ClientQuotaAlteration.Op("producer_byte_rate", limit)));
            told.add(Parity.told(admin.alterClientQuotas(Set.of(change)).all()));
            told.add(Parity.until(
                () -> admin.describeClientQuotas(filter).entities().get().toString(),
                answer -> answer.equals("{}") == (limit == null)));
        }
        return told;
    }

    private static Object scram(Admin admin, Arguments arguments) throws Exception {
        String user = arguments.get("prefix") + "someone";
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        List<Object> told = new ArrayList<>();
        var upsertion = new UserScramCredentialUpsertion(user, info, "secret");
        told.add(Parity.told(admin.alterUserScramCredentials(List.of(upsertion)).all()));
        told.add(Parity.until(
            () -> admin.describeUserScramCredentials(List.of(user)).description(user).get().toString(),
            answer -> answer.toString().contains("SHA_256")));
        told.add(Parity.told(admin.alterUserScramCredentials(
            List.of(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))).all()));
        told.add(Parity.until(
            () -> admin.describeUserScramCredentials(List.of(user)).description(user).get().toString(),
            answer -> answer.equals("ResourceNotFoundException")));
        return told;
    }
}
