// What becomes of a batch and why, for people; the keys are the metrics' and the journal's, which never change.

export const REASONS = {
  null_key: ["merged, may move", "Its records have no key: they go to whichever partition is best."],
  keyed: ["merged, stays", "Its records have keys: they keep their partition and their order."],
  mixed: ["merged, in parts", "Some of its records have a key and stay, the others may move."],
  idempotent: ["untouched", "The client is idempotent. With enable.idempotence=false in the client, Forebay would merge its records."],
  transactional: ["untouched", "The client uses transactions: nothing of it is touched."],
  topic_excluded: ["untouched", "topics.include and topics.exclude leave this topic out."],
  client_excluded: ["untouched", "client.ids.include and client.ids.exclude leave this client out."],
  settings_changed: ["untouched", "The first request after what may be touched has changed: it goes alone, to keep the order."],
  observed: ["untouched", "Forebay only observes here (moves, topics.observe, client.ids.observe), and measures what it would do."],
  own_login: ["untouched", "The client logs in at the brokers by itself: its records mix with nobody's."],
  internal_topic: ["untouched", "The topic is one of Kafka's own."],
  unknown_attributes: ["untouched", "The batch says something about itself that this Forebay does not know."],
  no_metadata: ["untouched", "The topic's name is longer than Kafka allows."],
  empty: ["nothing in it", "A message set without messages."],
  corrupt: ["left to the broker", "Its checksum or its structure is wrong."],
  invalid: ["left to the broker", "Its records are not valid."],
  too_large: ["left to the broker", "Decompressed, it is larger than max.decompressed.bytes."],
};
