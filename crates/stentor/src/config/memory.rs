//! How much memory each process registers: fixed by the configuration, known before the start.

use stentor_fabric::ring::Geometry;

use super::{ClusterConfig, Role};

/// One kind of region at one kind of process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryRow {
    /// What it is for.
    pub what: &'static str,
    /// How many regions, and why so many.
    pub count: u64,
    /// The formula, in words of the configuration.
    pub formula: String,
    /// Bytes of each.
    pub bytes_each: u64,
}

impl MemoryRow {
    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.bytes_each
    }
}

/// The memory of every process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// What one member registers.
    pub member: Vec<MemoryRow>,
    /// What one client registers.
    pub client: Vec<MemoryRow>,
    /// All members and all places for clients together, bytes.
    pub total_bytes: u64,
}

impl MemoryPlan {
    /// Bytes of one member.
    #[must_use]
    pub fn member_bytes(&self) -> u64 {
        self.member.iter().map(MemoryRow::bytes).sum()
    }

    /// Bytes of one client.
    #[must_use]
    pub fn client_bytes(&self) -> u64 {
        self.client.iter().map(MemoryRow::bytes).sum()
    }
}

/// Cells of 64 bytes for each message of the window: a header, the destinations and 64 bytes of payload. Longer
/// messages take more cells, and the window is then bounded by the ring.
const CELLS_PER_MESSAGE: u64 = 2;

/// The one place that knows the sizes.
pub(super) fn plan(config: &ClusterConfig) -> MemoryPlan {
    let limits = config.limits;
    let table = config.process_table();
    let is_member = |role: Role| matches!(role, Role::Member { .. });
    let members = table.entries().iter().filter(|entry| is_member(entry.role)).count() as u64;
    let clients = u64::from(limits.clients);
    let bodies = Geometry::new(0, u64::from(limits.window) * CELLS_PER_MESSAGE, limits.message_bytes as usize);
    let ring = u64::from(limits.ring_kib) << 10;
    let bodies = MemoryRow {
        what: "message ring of each client",
        count: clients,
        formula: "clients × max(window × 128 B, 2 × longest record), and room for one record's overhang".to_owned(),
        bytes_each: bodies.bytes(),
    };
    let control = |count, formula: &str| MemoryRow {
        what: "control ring of each member",
        count,
        formula: formula.to_owned(),
        bytes_each: ring,
    };
    let member = vec![bodies, control(members - 1, "other members × ring_kib")];
    let client = vec![control(members, "members × ring_kib")];
    let mut plan = MemoryPlan { member, client, total_bytes: 0 };
    plan.total_bytes = members * plan.member_bytes() + clients * plan.client_bytes();
    plan
}
