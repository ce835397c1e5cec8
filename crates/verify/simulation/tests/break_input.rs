//! Sealed input that no correct client writes, and fabrics that cannot support the limits.

mod break_bed;

use std::sync::Arc;

use break_bed::{Bed, SALT, limits};
use stentor_fabric::seal::{HEADER_WORDS, record_words};
use stentor_fabric::{
    Fabric, ProcessId, Purpose, QpConfig, RegionSpec, RemoteSpan, RingWriter, Service, Source, Span, Verb, WorkRequest,
};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{
    Client, ClientId, Destination, GroupId, Header, Limits, MessageId, NodeError, Topology, forged_hello,
};

const SETTLED_NS: u64 = 100_000;

/// Number below all sequences of the second process with a client id.
const SECOND_PROCESS: u64 = 1 << MessageId::GENERATION_BITS;

/// A client that writes arbitrary messages into the ring of member 0.
struct Forger {
    fabric: SimFabric,
    qp: stentor_fabric::QpId,
    ring: RingWriter,
}

impl Forger {
    fn new(bed: &mut Bed) -> Forger {
        let me = bed.topology.client_process(ClientId(0));
        let mut fabric = bed.world.restart(me);
        bed.clients[0] = None;
        let (hello, seal) = forged_hello(me, 9, SALT);
        let hello: Vec<u8> = hello.iter().flat_map(|word| word.to_le_bytes()).collect();
        let inbox = RegionSpec { purpose: Purpose(4), writer: me, bytes: 4 * hello.len() as u64 };
        let inbox = fabric.register(inbox).expect("memory of its own");
        let qp = fabric.connect(ProcessId(0), Service(1), QpConfig::reliable(16, 4)).expect("a free queue pair");
        for receive in 0..4 {
            let bytes = hello.len() as u32;
            let span = Span { region: inbox, offset: receive * u64::from(bytes), bytes };
            fabric.post_recv(qp, span, receive).expect("room for receives");
        }
        bed.run(5_000_000, true);
        let verb = Verb::Send { source: Source::Inline(&hello), imm: None };
        fabric.post(qp, WorkRequest { id: 0, verb, signalled: true }).expect("a queue pair that is ready");
        fabric.flush();
        bed.run(SETTLED_NS, true);
        Forger { fabric, qp, ring: RingWriter::new(bed.limits.body_ring(&bed.topology), seal) }
    }

    /// Writes message `number`.
    fn write(&mut self, number: u64, slot: u64, payload: u64) {
        let sequence = SECOND_PROCESS + number;
        let bytes = Header::words(1) * 8 + 8;
        let mut record = vec![0; record_words(bytes)];
        let to = [Destination { group: GroupId(0), slot }];
        Header::encode(sequence, 8, false, &to, &mut record[HEADER_WORDS..]);
        *record.last_mut().expect("a record") = payload;
        let place = self.ring.seal(bytes, &mut record).expect("the ring has room");
        let region = self.fabric.resolve(ProcessId(0), Purpose(3)).expect("a granted ring");
        let source: Vec<u8> = record.iter().flat_map(|word| word.to_le_bytes()).collect();
        let target = RemoteSpan { region, offset: place.offset };
        let verb = Verb::Write { source: Source::Inline(&source), target };
        self.fabric.post(self.qp, WorkRequest { id: 1, verb, signalled: true }).expect("a queue pair that is ready");
        self.fabric.flush();
    }
}

#[test]
fn a_message_for_another_slot_is_refused_and_no_other_is_delivered_with_its_bytes() {
    let mut bed = Bed::new(&[1], 1, limits(2, 64, 8192), NetworkModel::uniform(1_000));
    let mut forger = Forger::new(&mut bed);
    forger.write(1, 5, 66);
    for (sequence, slot) in [(2, 0), (3, 1), (4, 2)] {
        forger.write(sequence, slot, 10 + slot);
        bed.run(SETTLED_NS, true);
    }
    let delivered: Vec<_> =
        bed.delivered[0].iter().map(|(id, payload)| (id.sequence - SECOND_PROCESS, payload[0])).collect();
    assert_eq!(delivered, [(2, 10), (3, 11), (4, 12)]);
    assert_eq!(bed.members[0].counts().rejected, 1);
}

fn start(network: NetworkModel, limits: Limits) -> Result<(), NodeError> {
    let topology = Arc::new(Topology::new(&[1], 1).expect("a possible cluster"));
    let world = World::new(SimConfig::new(2, 0, network));
    Client::new(world.fabric(ProcessId(1)), topology, ClientId(0), limits, SALT, 1).map(|_| ())
}

#[test]
fn a_fabric_that_cannot_carry_the_limits_is_refused_at_start() {
    assert_eq!(start(NetworkModel::calm(), limits(8, 4096, 8192)), Ok(()));
    let short = NetworkModel { max_message_bytes: 4096, ..NetworkModel::calm() };
    assert!(matches!(start(short, limits(8, 4096, 8192)), Err(NodeError::Fabric { has: 4096, .. })));
    let bare = NetworkModel { inline_bytes: 0, ..NetworkModel::calm() };
    assert!(matches!(start(bare, limits(8, 64, 8192)), Err(NodeError::Fabric { has: 0, .. })));
}
