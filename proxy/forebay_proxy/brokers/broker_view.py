"""What one identity knows of the brokers, and how it reaches them. It declares, and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from forebay_policies.metadata_cache import MetadataCache
from forebay_proxy.brokers.broker_addresses import BrokerAddresses
from forebay_proxy.brokers.broker_versions import BrokerVersions
from forebay_proxy.brokers.cluster import Cluster
from forebay_proxy.brokers.connector import Connector
from forebay_proxy.brokers.metadata_updater import MetadataUpdater
from forebay_proxy.brokers.reachability import Reachability


@dataclass(slots=True)
class BrokerView:
    """What one identity knows of the brokers; `versions` alone, which takes no login to learn, is everybody's.

    `caches`: those of all identities, `cache` among them.
    """

    cluster: Cluster
    cache: MetadataCache
    caches: set[MetadataCache]
    updater: MetadataUpdater
    versions: BrokerVersions
    addresses: BrokerAddresses
    reachability: Reachability
    connector: Connector
