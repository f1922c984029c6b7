"""Kafka's error codes that Forebay reads or gives. Source: https://kafka.apache.org/protocol.html#protocol_error_codes"""

from typing import Final

UNKNOWN_SERVER_ERROR: Final = -1
NONE: Final = 0
CORRUPT_MESSAGE: Final = 2
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER_OR_FOLLOWER: Final = 6
REQUEST_TIMED_OUT: Final = 7
BROKER_NOT_AVAILABLE: Final = 8
MESSAGE_TOO_LARGE: Final = 10
COORDINATOR_NOT_AVAILABLE: Final = 15
RECORD_LIST_TOO_LARGE: Final = 18
NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_VERSION: Final = 35
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 76
INVALID_RECORD: Final = 87
