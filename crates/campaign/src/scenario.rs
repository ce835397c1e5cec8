//! The cluster, the load and the faults of one seed.

use stentor_fabric_sim::{FaultMix, NetworkModel};
use stentor_multicast::{Limits, Variant};

use crate::chance::Chance;

/// What one seed runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Members of each group.
    pub groups: Vec<usize>,
    /// Clients.
    pub clients: u16,
    /// Messages of each client.
    pub messages: u64,
    /// Window and rings: small, so that everything wraps.
    pub limits: Limits,
    /// Which protocol.
    pub variant: Variant,
    /// Delays and liberties.
    pub network: NetworkModel,
    /// Faults of processes and links.
    pub mix: FaultMix,
    /// Longest pause of a client between two messages, ns; 0: as fast as the window lets it.
    pub pause_ns: u64,
}

/// No run takes longer than this, virtual time. Without faults that last, a run is over after some milliseconds.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;

/// No run takes more steps than this, all processes together: about 20 times what the longest takes.
pub(crate) const MOST_STEPS: u64 = 500_000;

impl Scenario {
    /// Draws a cluster of 3 or 4 groups, at least 200 messages to mixed destinations, every ordering fault of the
    /// contract, stalls and short partitions that break no connection. Nobody crashes.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 0);
        let groups: Vec<usize> = (0..chance.between(3, 4)).map(|_| chance.pick(&[1, 1, 2, 3, 3, 3, 5])).collect();
        let clients = chance.between(2, 4) as u16;
        let limits = Limits {
            message_bytes: 1536,
            window: chance.pick(&[2, 4, 8, 16]),
            body_ring_bytes: chance.pick(&[2048, 8192]),
            control_ring_bytes: 4096,
        };
        let mix = FaultMix {
            count: 6,
            from_ns: 20_000,
            until_ns: 600_000,
            longest_ns: 60_000,
            stall: 3,
            partition: 1,
            one_way: 2,
            ..FaultMix::NONE
        };
        Scenario {
            groups,
            clients,
            messages: 200_u64.div_ceil(u64::from(clients)) + chance.between(0, 8),
            limits,
            variant: chance.pick(&[Variant::V2, Variant::V2, Variant::V2, Variant::V2, Variant::V1]),
            network: NetworkModel::adversarial(),
            mix,
            pause_ns: chance.pick(&[0, 0, 2_000, 20_000]),
        }
    }
}
