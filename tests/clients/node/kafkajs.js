// KafkaJS's public API, scenario by scenario: `node kafkajs.js BOOTSTRAP PREFIX` prints `name outcome`, a line each.
// Names that it makes begin with PREFIX, which is left out of what it prints, as are ids and times of the brokers' own.
'use strict'

const { Kafka, Partitioners, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const [bootstrap, prefix] = process.argv.slice(2)
const kafka = new Kafka({ brokers: bootstrap.split(','), clientId: 'parity', logLevel: logLevel.NOTHING })
const admin = kafka.admin()

const records = Array.from({ length: 30 }, (_, seq) => ({
  partition: seq % 3, key: `key-${seq}`, value: `value-${seq}`, timestamp: String(1000 + seq), headers: { name: 'value' },
}))

async function withTopic (name) {
  const topic = prefix + name
  const replicaAssignment = [0, 1, 2].map(node => ({ partition: node, replicas: [node] }))
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, replicaAssignment }] })
  return topic
}

async function withProducer (settings, use) {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings })
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

async function fill (topic) {
  await withProducer({}, producer => producer.send({ topic, messages: records }))
}

async function read (subscription, group, count) {
  const consumer = kafka.consumer({ groupId: prefix + group })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ fromBeginning: true, ...subscription })
  try {
    await new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${found.length} of ${count} records`)), 30000)
      consumer.run({
        eachMessage: async ({ topic, partition, message }) => {
          found.push([topic, partition, message.offset, String(message.key), String(message.value)].join(' '))
          if (found.length === count) {
            clearTimeout(late)
            resolve()
          }
        },
      }).catch(reject)
    })
  } finally {
    await consumer.disconnect()
  }
  return found.sort()
}

async function told (call) {
  try {
    return await call
  } catch (error) {
    return error.type || error.name
  }
}

const places = answers => answers.map(each => [each.partition, each.errorCode, each.baseOffset].join(' ')).sort()

const scenarios = {
  async keyed () {
    const outcome = []
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      for (const acks of [0, 1, -1]) {
        const topic = await withTopic(`keyed-${compression}-${acks}`)
        outcome.push(places(await withProducer({}, each => each.send({ topic, acks, compression, messages: records }))))
        outcome.push(await read({ topic }, topic, 30))
      }
    }
    return outcome
  },
  async withoutKeys () {
    const topic = await withTopic('without-keys')
    const messages = records.map(({ value }) => ({ value }))
    await withProducer({}, producer => producer.send({ topic, messages }))
    return (await read({ topic }, topic, 30)).map(line => line.split(' ').pop()).sort()
  },
  async idempotent () {
    const topic = await withTopic('idempotent')
    const send = producer => producer.sendBatch({ topicMessages: [{ topic, messages: records }] })
    return places(await withProducer({ idempotent: true, maxInFlightRequests: 1 }, send))
  },
  async transactions () {
    const topic = await withTopic('transactions')
    // An id for each: KafkaJS does not wait for the end of the one before (CONCURRENT_TRANSACTIONS).
    for (const run of ['first', 'aborted', 'last']) {
      const settings = { idempotent: true, maxInFlightRequests: 1, transactionalId: prefix + run }
      await withProducer(settings, async producer => {
        const transaction = await producer.transaction()
        await transaction.send({ topic, messages: [0, 1, 2].map(partition => ({ partition, value: run })) })
        await (run === 'aborted' ? transaction.abort() : transaction.commit())
      })
    }
    const settings = { idempotent: true, maxInFlightRequests: 1, transactionalId: prefix + 'offsets' }
    await withProducer(settings, async producer => {
      const transaction = await producer.transaction()
      const topics = [{ topic, partitions: [{ partition: 0, offset: '1' }] }]
      await transaction.sendOffsets({ consumerGroupId: prefix + 'in-a-transaction', topics })
      await transaction.commit()
    })
    const offsets = await admin.fetchOffsets({ groupId: prefix + 'in-a-transaction', topics: [topic] })
    return [await read({ topic }, 'committed', 6), offsets[0].partitions]
  },
  async group () {
    const topic = await withTopic('group')
    await fill(topic)
    const first = await read({ topic }, 'group', 30)
    await fill(topic)
    return [first, await read({ topic }, 'group', 30)]
  },
  async pattern () {
    for (const name of ['wanted-1', 'wanted-2', 'other']) {
      await fill(await withTopic(name))
    }
    return read({ topic: new RegExp(`^${prefix.replace(/\./g, '\\.')}wanted-.*`) }, 'pattern', 60)
  },
  async offsets () {
    const topic = await withTopic('offsets')
    await fill(topic)
    const outcome = [await admin.fetchTopicOffsets(topic), await admin.fetchTopicOffsetsByTimestamp(topic, 1015)]
    await admin.setOffsets({ groupId: prefix + 'set', topic, partitions: [{ partition: 1, offset: '4' }] })
    outcome.push((await admin.fetchOffsets({ groupId: prefix + 'set', topics: [topic] }))[0].partitions)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '5' }] })
    outcome.push(await admin.fetchTopicOffsets(topic))
    const byPartition = (a, b) => a.partition - b.partition
    return outcome.map(partitions => [...partitions].sort(byPartition))
  },
  async topics () {
    const topic = await withTopic('topics')
    const outcome = [(await admin.listTopics()).includes(topic)]
    outcome.push((await told(admin.createTopics({ topics: [{ topic }] }))))
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] })
    const { topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: [topic] })
    outcome.push(partitions.length >= 3)
    await admin.deleteTopics({ topics: [topic] })
    outcome.push(await told(admin.deleteTopics({ topics: [topic] })))
    return outcome
  },
  async cluster () {
    const { brokers, clusterId } = await admin.describeCluster()
    return [brokers.sort((a, b) => a.nodeId - b.nodeId).map(each => `${each.nodeId} ${each.host}:${each.port}`), clusterId]
  },
  async configs () {
    const topic = await withTopic('configs')
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const described = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })
    const configEntries = [{ name: 'max.message.bytes', value: '100000' }]
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
    return described.resources[0].configEntries.map(each => `${each.configName}=${each.configValue}`).sort()
  },
  async groups () {
    const topic = await withTopic('groups')
    await fill(topic)
    await read({ topic }, 'groups', 30)
    const group = prefix + 'groups'
    const listed = (await admin.listGroups()).groups.filter(each => each.groupId === group)
    const { groups: [{ state, protocolType }] } = await admin.describeGroups([group])
    return [listed, state, protocolType, await told(admin.deleteGroups([group]))]
  },
  async acls () {
    return told(admin.describeAcls({ resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }))
  },
}

async function main () {
  await admin.connect()
  for (const [name, scenario] of Object.entries(scenarios)) {
    const outcome = await scenario().catch(error => `failed: ${error.stack}`)
    console.log(name, JSON.stringify(outcome).replaceAll(prefix, ''))
  }
  await admin.disconnect()
}

main()
