//! A leader that missed a larger ballot of its group, on simulated NICs and in virtual time.

use std::sync::Arc;
use std::time::Duration;

use stentor::runtime::{Client, ClientId, Delivered, ElectionDriver, GroupId, Member, stateless};
use stentor_election::{Change, Scripted};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Due, NetworkModel, SimConfig, SimFabric, World};
use stentor_multicast::{Ballot, Limits, ReplicaConfig, Topology};

const SALT: u64 = 5;
const GROUP: GroupId = GroupId(0);
/// Time between two rounds of an election driver, in nanoseconds.
const ROUND_NS: u64 = 20_000;
/// Timeout of a campaign, in nanoseconds.
const PATIENCE_NS: u64 = 800_000;
/// Time in which a queue pair breaks or is reconnected, and a campaign completes, in nanoseconds.
const SETTLES_NS: u64 = 10_000_000;
/// Bound on the number of steps in that time.
const STEPS: usize = 100_000;

/// Time at which the election names the second member, in nanoseconds.
const SECOND_NS: u64 = 2 * SETTLES_NS;
/// Time at which the election names the first member again, in nanoseconds.
const FIRST_AGAIN_NS: u64 = 4 * SETTLES_NS;

/// The decisions of an election at a member, and their times.
type Script = Vec<(Duration, Change)>;

struct Bed {
    world: World,
    members: Vec<(Member<SimFabric>, ElectionDriver<Scripted>)>,
    client: Client<SimFabric>,
    /// Number of delivered messages, by member.
    delivered: Vec<usize>,
}

impl Bed {
    fn new(seed: u64, script: impl Fn(ProcessId) -> Script) -> Bed {
        let topology = Arc::new(Topology::new(&[3], 1).expect("a possible cluster"));
        let network = NetworkModel { retry_ns: 200_000, ..NetworkModel::calm() };
        let world = World::new(SimConfig::new(topology.processes(), seed, network));
        let limits = Limits {
            message_bytes: 64,
            window: 64,
            body_ring_bytes: 16 << 10,
            control_ring_bytes: 16 << 10,
            ..Limits::default()
        };
        let processes: Vec<ProcessId> = topology.members(GROUP).collect();
        let [round, patience] = [ROUND_NS, PATIENCE_NS].map(Duration::from_nanos);
        let start = |me: &ProcessId| {
            let config =
                ReplicaConfig { retry_ticks: 3, ..ReplicaConfig::new(Arc::clone(&topology), *me, limits.window) };
            let mut member = Member::new(world.fabric(*me), config, limits, SALT, 1).expect("a possible member");
            member.set_tick(round);
            // A member that cannot reach the other members still reaches the client, and must not give it up.
            member.set_client_timeout(Duration::MAX);
            (member, ElectionDriver::new(Scripted::new(script(*me)), *me, &processes, round, patience))
        };
        let members = processes.iter().map(start).collect();
        let fabric = world.fabric(topology.client_process(ClientId(0)));
        let client = Client::new(fabric, topology, ClientId(0), limits, SALT, 1);
        Bed { world, members, client: client.expect("a possible client"), delivered: vec![0; 3] }
    }

    /// Runs all processes up to a time.
    fn run_until(&mut self, until_ns: u64) {
        for _ in 0..STEPS {
            let Some(due) = self.world.next(until_ns) else { return };
            let Due::Step { process, now_ns } = due else { unreachable!("nobody crashes") };
            let worked = if let Some((member, keeper)) = self.members.get_mut(process.index()) {
                let (now, delivered) = (Duration::from_nanos(now_ns), &mut self.delivered[process.index()]);
                let mut app = stateless(|_: &Delivered<'_>| *delivered += 1);
                let worked = member.housekeep() | member.step(now, &mut app);
                keeper.poll(now, member);
                worked
            } else {
                self.client.housekeep() | self.client.step()
            };
            self.world.wake_at(process, now_ns + ROUND_NS);
            self.world.stepped(process, worked);
        }
        panic!("{STEPS} steps, and it is not {until_ns} ns");
    }

    fn multicast(&mut self) {
        self.client.submit(&[GROUP], b"message", false).expect("there is room");
    }

    /// Returns whether a member considers itself the leader, its ballot, and the largest ballot of its group that it
    /// knows.
    fn state(&self, member: usize) -> (bool, Ballot, Ballot) {
        let replica = self.members[member].0.replica();
        (replica.is_leader(), replica.ballot(), replica.known(GROUP))
    }
}

/// The first member leads and is cut off. The second one leads the third in a larger ballot, and is cut off before the
/// first learns of it. When the first and the third reconnect, the third informs the first of that ballot. The first
/// still considers itself the leader, but nobody follows it, so it has to campaign when the election names it.
#[test]
fn leader_that_learns_of_a_larger_ballot_campaigns_when_named_again() {
    let [first, second, third] = [0, 1, 2].map(ProcessId);
    let script = |me: ProcessId| {
        let leader = |epoch, process| Change::Leader { epoch, process };
        let doubted = if me == first { Change::Resigned { epoch: 1 } } else { leader(2, second) };
        let script = [(0, leader(1, first)), (SECOND_NS, doubted), (FIRST_AGAIN_NS, leader(3, first))];
        script.map(|(at, change)| (Duration::from_nanos(at), change)).to_vec()
    };
    for seed in 1..=8 {
        let mut bed = Bed::new(seed, script);
        bed.run_until(SETTLES_NS);
        bed.multicast();
        bed.run_until(SETTLES_NS + SETTLES_NS / 2);
        assert_eq!(bed.delivered, [1, 1, 1], "seed {seed}");
        let (leads, old, known) = bed.state(0);
        assert!(leads && old == known, "seed {seed}: {old:?} {known:?}");

        bed.world.cut(first, second);
        bed.world.cut(first, third);
        bed.run_until(SECOND_NS + SETTLES_NS / 2);
        bed.multicast();
        bed.run_until(SECOND_NS + SETTLES_NS);
        let (leads, larger, _) = bed.state(1);
        assert!(leads && larger > old, "seed {seed}: {larger:?} after {old:?}");
        assert_eq!(bed.delivered, [1, 2, 2], "seed {seed}: the first one takes no part");
        assert_eq!(bed.state(0), (true, old, old), "seed {seed}: the first one does not know of the second");

        bed.world.cut(second, third);
        bed.world.heal(first, third);
        bed.run_until(FIRST_AGAIN_NS - 1);
        assert_eq!(bed.state(0), (true, old, larger), "seed {seed}: a leader that knows a larger ballot");
        bed.multicast();

        bed.run_until(FIRST_AGAIN_NS + SETTLES_NS);
        let (leads, newest, known) = bed.state(0);
        assert!(leads && newest > larger && known == newest, "seed {seed}: {newest:?} after {larger:?}");
        assert_eq!((bed.delivered[0], bed.delivered[2]), (3, 3), "seed {seed}");
    }
}
