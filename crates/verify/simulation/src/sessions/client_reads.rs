//! What a client knows of its reads outside the order.

use std::collections::BTreeMap;

use stentor_multicast::GroupId;
use stentor_session::{Position, ReadGuarantee, Reader};

use super::shared::Shared;
use crate::chance::Chance;

/// Reads that a client has under way, at most.
const MOST: usize = 4;
/// Streams of reads are above those of processes.
const STREAM: u64 = 100_000;

/// Reads of these that a client has under way at most, where the workload asks for them.
pub(super) const MOST_SCRIPTED: usize = 16;
/// Streams of these reads are above those of drawn ones.
const SCRIPTED_STREAM: u64 = 200_000;

/// A read under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) group: GroupId,
    pub(super) guarantee: ReadGuarantee,
    /// How many deliveries some member of the group had made when it was sent.
    pub(super) furthest: u64,
    pub(super) since_ns: u64,
}

/// The reads of one client.
pub(super) struct ClientReads {
    pub(super) reader: Reader,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    pub(super) chance: Chance,
    pub(super) next_ns: u64,
    /// The last place that an answer to this client named, by group.
    pub(super) known: BTreeMap<GroupId, Position>,
}

impl ClientReads {
    /// Reads of a process; `None`: it reads nothing.
    pub(super) fn new(shared: &Shared, process: stentor_fabric::ProcessId, incarnation: u64) -> Option<ClientReads> {
        shared.scenario.reads_ns?;
        let mut chance = Chance::new(shared.salt, STREAM + u64::from(process.0) * 1000 + incarnation);
        let reader = Reader::new(&shared.topology, MOST, chance.between(0, u64::MAX - 1));
        Some(ClientReads { reader, under_way: BTreeMap::new(), chance, next_ns: 0, known: BTreeMap::new() })
    }
}

/// The reads of one client that the workload asks for.
pub(super) struct Scripted {
    pub(super) reader: Reader,
    /// By name, each with its token.
    pub(super) under_way: BTreeMap<u64, (u64, UnderWay)>,
    /// The read that begins when a member of the group is connected.
    pub(super) next: Option<(GroupId, ReadGuarantee)>,
}

impl Scripted {
    /// Reads of a process. Those of the processes before it are lost.
    pub(super) fn new(shared: &Shared, process: stentor_fabric::ProcessId, incarnation: u64) -> Scripted {
        let stream = SCRIPTED_STREAM + u64::from(process.0) * 1000 + incarnation;
        let word = Chance::new(shared.salt, stream).between(0, u64::MAX - 1);
        let reader = Reader::new(&shared.topology, MOST_SCRIPTED, word);
        Scripted { reader, under_way: BTreeMap::new(), next: None }
    }
}
