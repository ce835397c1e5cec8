//! Tests of members: what they report to a client about earlier processes with its client id, and how they send
//! transfer pieces and restart streams. The members know of the earlier processes only by no-ops, because the members
//! that held the messages have lost their memory.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Due, NetworkModel, SimConfig, SimFabric, World};

use super::Member;
use super::recover::TRANSFER;
use crate::node::effects::Out;
use crate::node::frozen::FrozenBytes;
use crate::node::transfer::{Backlog, Name, OutgoingTransfer, PIECE_BYTES};
use crate::{
    Application, Client, ClientId, Delivered, GroupId, Head, Limits, MessageId, PeerMessage, ReplicaConfig, ShortSlot,
    StreamEntry, StreamItem, Topology,
};

const SALT: u64 = 5;
const CONNECTED_NS: u64 = 8_000_000;
const LEADER: ProcessId = ProcessId(0);
const C0: ClientId = ClientId(0);

struct Nothing;

impl Application for Nothing {
    fn deliver(&mut self, _: &Delivered<'_>) {}
    fn snapshot(&mut self, _: &mut Vec<u8>) {}
    fn restore(&mut self, _: u64, _: &[u8]) {}
}

/// A group of three members that has run for a while, and a client id that no process has used yet.
struct Bed {
    world: World,
    topology: Arc<Topology>,
    members: Vec<Member<SimFabric>>,
    client: Option<Client<SimFabric>>,
}

fn limits() -> Limits {
    Limits { message_bytes: 256, window: 16, body_ring_bytes: 8192, control_ring_bytes: 4096, ..Limits::default() }
}

impl Bed {
    fn new() -> Bed {
        let topology = Arc::new(Topology::new(&[3], 1).expect("a possible cluster"));
        let world = World::new(SimConfig::new(4, 1, NetworkModel::calm()));
        let member = |me| {
            let config = ReplicaConfig::new(topology.clone(), me, limits().window);
            Member::new(world.fabric(me), config, limits(), SALT, 1).expect("a possible member")
        };
        let members = (0..3).map(ProcessId).map(member).collect();
        let mut bed = Bed { world, topology, members, client: None };
        bed.run();
        bed
    }

    fn run(&mut self) {
        let until = self.world.now_ns() + CONNECTED_NS;
        for process in 0..4 {
            self.world.wake_at(ProcessId(process), self.world.now_ns());
        }
        while let Some(due) = self.world.next(until) {
            let Due::Step { process, now_ns } = due else { continue };
            let worked = match (self.members.get_mut(process.index()), &mut self.client) {
                (Some(member), _) => member.housekeep() | member.step(Duration::from_nanos(now_ns), &mut Nothing),
                (None, Some(client)) => client.housekeep() | client.step(),
                (None, None) => false,
            };
            self.world.stepped(process, worked);
            if process.index() < 3 {
                self.world.wake_at(process, now_ns + 2_000_000);
            }
        }
        self.world.advance(until - self.world.now_ns());
    }

    /// Passes to a follower a no-op of the leader's stream. The slot belongs to a process of generation 0, and no
    /// member has seen its message.
    fn void(&mut self, member: usize, (counter, slot): (u64, u64), settled: bool) {
        let Member { replica, outputs, stores, .. } = &mut self.members[member];
        let head = Head { client: C0, sequence: 0, slot: ShortSlot::of(slot), groups: 1 };
        let item = StreamItem { head, counter, entry: StreamEntry::NoOp { settled } };
        let mut out = Out { outputs, stores, app: &mut Nothing };
        replica.on_stream(LEADER, &item, &mut out).expect("the next entry of the stream");
    }

    /// Starts a process with the client id, connects it to all members and multicasts one message.
    fn first_multicast(&mut self) -> MessageId {
        let fabric = self.world.fabric(self.topology.client_process(C0));
        let client = Client::new(fabric, self.topology.clone(), C0, limits(), SALT, 1);
        self.client = Some(client.expect("a possible client"));
        self.run();
        let client = self.client.as_mut().expect("the client was created");
        client.submit(&[GroupId(0)], b"first", true).expect("the client is connected to all destinations").id
    }
}

#[test]
fn first_process_of_a_client_id_has_generation_zero() {
    assert_eq!(Bed::new().first_multicast().generation(), 0);
}

/// The only thing that a follower knows of a generation is a no-op whose message no member has seen.
#[test]
fn new_process_skips_a_generation_closed_by_a_nameless_no_op() {
    let mut bed = Bed::new();
    bed.void(1, (1, 0), false);
    let replica = bed.members[1].replica();
    assert_eq!((replica.closed_below(C0), replica.last_sequence(C0)), (1, 0));
    assert!(bed.first_multicast().generation() > 0);
}

/// A slot that the client has not used can only be freed if another process with its client id used it. The client then
/// cannot know whether its own messages were delivered.
#[test]
fn client_is_superseded_when_slots_it_never_used_are_freed() {
    let mut bed = Bed::new();
    let first = bed.first_multicast();
    bed.run();
    let client = |bed: &Bed| {
        let client = bed.client.as_ref().expect("the client was created");
        (client.is_superseded(), client.delivered_up_to())
    };
    assert_eq!(client(&bed), (false, first.sequence));
    bed.void(2, (4, 1), true);
    bed.run();
    assert_eq!(client(&bed), (true, first.sequence));
}

/// Starts a transfer of a state of `bytes` bytes at the leader.
fn transfer(leader: &mut Member<SimFabric>, to: ProcessId, bytes: usize) -> OutgoingTransfer {
    let name =
        Name { life: leader.links.life, incarnation: leader.applied_in(), freeze: leader.transfers.next_freeze() };
    let frozen = Box::new(FrozenBytes::new(vec![7; bytes]));
    leader.outputs.backlog = Some(Backlog::new(1 << 20));
    OutgoingTransfer::new(to, name, (leader.outputs.applied, frozen), 1 << 20, leader.recovery.now)
}

/// A receiver that lags sends so many requests that answers to it are always queued.
#[test]
fn transfer_pieces_are_sent_while_other_peer_messages_wait() {
    let mut bed = Bed::new();
    let (to, leader) = (ProcessId(2), &mut bed.members[LEADER.index()]);
    for _ in 0..20 {
        assert!(leader.assemblers[to.index()].post(&[TRANSFER + 1, 0, 0], b"an answer", leader.letter_bytes));
    }
    leader.transfers.outgoing = Some(transfer(leader, to, 8 * PIECE_BYTES));
    let waiting = |leader: &Member<SimFabric>| leader.assemblers[to.index()].waiting_with(TRANSFER);
    leader.send_transfer_pieces().expect("the transfer's pieces fit");
    let pieces = waiting(leader);
    assert!((1..8).contains(&pieces), "{pieces}");
    leader.send_transfer_pieces().expect("the transfer's pieces fit");
    assert_eq!(waiting(leader), pieces, "no more until these are written");
}

/// The stream stops with its connection, and the state with which it would restart is held back for a transfer.
/// Meanwhile the follower installs a state that was sent earlier.
#[test]
fn stream_stopped_by_a_disconnect_restarts_when_the_transfer_ends() {
    let mut bed = Bed::new();
    bed.first_multicast();
    bed.run();
    let (to, leader) = (ProcessId(2), &mut bed.members[LEADER.index()]);
    let mut outgoing = transfer(leader, to, 0);
    outgoing.pause();
    leader.transfers.outgoing = Some(outgoing);
    leader.streams.stop(to);
    leader.peer_connected(to, &mut Nothing);
    assert!(!leader.streams.is_started(to), "its state is held back");
    let installed = PeerMessage::Installed { ballot: leader.replica.ballot() };
    leader.with_replica(&mut Nothing, |replica, out| replica.on_peer_message(to, &installed, out)).expect("a member");
    leader.note_transferred(to, &installed);
    bed.run();
    let client = bed.client.as_mut().expect("the client was created");
    client.submit(&[GroupId(0)], b"second", true).expect("there is room");
    bed.run();
    assert_eq!(bed.members[2].replica().delivered(), 2);
}
