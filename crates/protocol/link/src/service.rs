//! Services of all queue pairs. Both ends of a queue pair name the same service, so none of these numbers may change.

use stentor_fabric::Service;

/// Multicast: all traffic except the stream.
pub const MULTICAST_MAIN: Service = Service(1);
/// Multicast: the leader's stream. Fencing a leader breaks only this queue pair.
pub const MULTICAST_STREAM: Service = Service(2);
/// Neb: all traffic.
pub const NEB: Service = Service(0x20);
/// Channel: all connections with one peer, unless the configuration names another service.
pub const CHANNEL: Service = Service(40);
