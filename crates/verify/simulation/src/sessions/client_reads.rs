//! The reads of a client outside the order, while they are in progress.

use std::collections::BTreeMap;

use stentor_multicast::GroupId;
use stentor_session::{Position, ReadGuarantee, Reader};

use super::shared::Shared;
use crate::chance::Chance;

/// Maximum number of drawn reads in progress per client.
const MOST: usize = 4;
/// The first stream of random choices for reads. It is above the streams of processes.
const STREAM: u64 = 100_000;

/// Maximum number of reads in progress per client that the workload requested.
pub(super) const MOST_SCRIPTED: usize = 16;
/// The first stream of random choices for the workload's reads. It is above the streams of drawn reads.
const SCRIPTED_STREAM: u64 = 200_000;

/// A read in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) group: GroupId,
    pub(super) guarantee: ReadGuarantee,
    /// The largest number of deliveries of a member of the group when the read was sent.
    pub(super) furthest: u64,
    pub(super) since_ns: u64,
}

/// The drawn reads of one client.
pub(super) struct ClientReads {
    pub(super) reader: Reader,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    pub(super) chance: Chance,
    pub(super) next_ns: u64,
    /// For each group, the last position in an answer to this client.
    pub(super) known: BTreeMap<GroupId, Position>,
}

impl ClientReads {
    /// Creates the reads of a process. Returns `None` if the process does not read.
    pub(super) fn new(shared: &Shared, process: stentor_fabric::ProcessId, incarnation: u64) -> Option<ClientReads> {
        shared.scenario.reads_ns?;
        let mut chance = Chance::new(shared.salt, STREAM + u64::from(process.0) * 1000 + incarnation);
        let reader = Reader::new(&shared.topology, MOST, chance.between(0, u64::MAX - 1));
        Some(ClientReads { reader, under_way: BTreeMap::new(), chance, next_ns: 0, known: BTreeMap::new() })
    }
}

/// The reads of one client that the workload requests.
pub(super) struct Scripted {
    pub(super) reader: Reader,
    /// Reads in progress by name, each with its token.
    pub(super) under_way: BTreeMap<u64, (u64, UnderWay)>,
    /// The read that begins when a member of the group is connected.
    pub(super) next: Option<(GroupId, ReadGuarantee)>,
}

impl Scripted {
    /// Creates the reads of a process. Reads of earlier processes are lost.
    pub(super) fn new(shared: &Shared, process: stentor_fabric::ProcessId, incarnation: u64) -> Scripted {
        let stream = SCRIPTED_STREAM + u64::from(process.0) * 1000 + incarnation;
        let word = Chance::new(shared.salt, stream).between(0, u64::MAX - 1);
        let reader = Reader::new(&shared.topology, MOST_SCRIPTED, word);
        Scripted { reader, under_way: BTreeMap::new(), next: None }
    }
}
