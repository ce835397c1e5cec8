//! The same in virtual time: one group, the real member and the real election, links of 1 µs, a leader that crashes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use stentor::runtime::{Client, ClientId, Delivered, ElectionDriver, GroupId, Member, stateless};
use stentor_election::{Heartbeat, HeartbeatConfig};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, Delay, NetworkModel, SimConfig, SimFabric, SimRng, World};
use stentor_multicast::{Limits, ReplicaConfig, Topology};
use stentor_support::Failure;

use super::load::PAYLOAD_BYTES;

/// How often members look at each other.
pub(super) const INTERVAL: Duration = Duration::from_micros(10);
/// A silence shorter than this is never suspicious.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_micros(100);
/// A longer one always is.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_micros(200);
/// The client multicasts this often, ns.
const PACE_NS: u64 = 10_000;
/// The leader crashes some time between these, ns.
const CRASH_NS: (u64, u64) = (2_000_000, 3_000_000);
/// Nothing takes longer than this, ns.
const END_NS: u64 = 50_000_000;
const SALT: u64 = 0x6661_696c_6f76_6572;

/// A network with links of 1 µs, one way.
fn network() -> NetworkModel {
    NetworkModel { propagation: Delay::exactly(1_000), ..NetworkModel::calm() }
}

/// What all see.
#[derive(Default)]
struct Seen {
    /// Time and number of the ballot of each delivery.
    deliveries: Vec<(u64, u64)>,
    leader: Option<(u64, ProcessId)>,
}

enum Process {
    Member(Box<Follower>),
    Client(Box<Caller>),
}

struct Follower {
    member: Member<SimFabric>,
    keeper: ElectionDriver<Heartbeat>,
    me: ProcessId,
    world: Rc<World>,
    seen: Rc<RefCell<Seen>>,
}

struct Caller {
    client: Client<SimFabric>,
    me: ProcessId,
    due_ns: u64,
    world: Rc<World>,
}

impl Actor for Process {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Process::Member(member) => member.step(now_ns),
            Process::Client(client) => client.step(now_ns),
        }
    }
}

impl Follower {
    fn step(&mut self, now_ns: u64) -> bool {
        let now = Duration::from_nanos(now_ns);
        let mut worked = self.member.housekeep();
        let seen = &self.seen;
        let note = |d: &Delivered<'_>| seen.borrow_mut().deliveries.push((now_ns, d.ballot.number()));
        worked |= self.member.step(now, &mut stateless(note));
        self.keeper.round(now, &mut self.member);
        let replica = self.member.replica();
        let mut seen = self.seen.borrow_mut();
        if replica.is_leader() && seen.leader.is_none_or(|(ballot, _)| ballot < replica.ballot().number()) {
            seen.leader = Some((replica.ballot().number(), self.me));
        }
        self.world.wake_at(self.me, now_ns + INTERVAL.as_nanos() as u64);
        worked
    }
}

impl Caller {
    fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        // What finds no room or nobody is sent a little later.
        if now_ns >= self.due_ns && self.client.submit(&[GroupId(0)], &[7; PAYLOAD_BYTES], true).is_ok() {
            worked = true;
            self.due_ns = now_ns + PACE_NS;
        }
        self.world.wake_at(self.me, self.due_ns.max(now_ns + PACE_NS / 10));
        worked
    }
}

/// From the last delivery before to the first one after, in a group of so many, ns.
pub(super) fn outage(seed: u64, replicas: usize) -> Result<u64, Failure> {
    let stuck =
        |what: &str| Failure::run(format_args!("{what}; seed {seed}"), "bench failover", "report this as a bug");
    let topology = Arc::new(Topology::new(&[replicas], 1).map_err(|error| stuck(&error.to_string()))?);
    let world = Rc::new(World::new(SimConfig::new(topology.processes(), seed, network())));
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut actors = actors(&topology, &world, &seen).map_err(|error| stuck(&error))?;
    let (least, most) = CRASH_NS;
    let at = least + SimRng::new(seed, 1).below(most - least);
    world.run(&mut actors, at, |_, _| false);
    let (ballot, leader) = seen.borrow().leader.ok_or_else(|| stuck("nobody led"))?;
    world.crash(leader);
    let later = |seen: &Seen| seen.deliveries.last().is_some_and(|(_, number)| *number > ballot);
    if !world.run(&mut actors, END_NS, |_, _| later(&seen.borrow())) {
        return Err(stuck("nothing was delivered after the leader crashed"));
    }
    let seen = seen.borrow();
    let first = seen.deliveries.iter().find(|(_, number)| *number > ballot).map_or(0, |(t, _)| *t);
    let last = seen.deliveries.iter().rev().find(|(_, number)| *number <= ballot);
    Ok(first - last.ok_or_else(|| stuck("nothing was delivered before the leader crashed"))?.0)
}

fn actors(
    topology: &Arc<Topology>,
    world: &Rc<World>,
    seen: &Rc<RefCell<Seen>>,
) -> Result<Vec<Option<Process>>, String> {
    let limits = Limits { message_bytes: PAYLOAD_BYTES, window: 256, ..Limits::default() };
    let members: Vec<ProcessId> = topology.members(GroupId(0)).collect();
    let mut actors = Vec::new();
    for &me in &members {
        let config = ReplicaConfig::new(Arc::clone(topology), me, limits.window);
        let mut member = Member::new(world.fabric(me), config, limits, SALT, 1).map_err(|error| error.to_string())?;
        member.set_tick(INTERVAL);
        let heartbeat = HeartbeatConfig {
            timeout_min: TIMEOUT_MIN,
            timeout_max: TIMEOUT_MAX,
            ..HeartbeatConfig::new(me, &members, INTERVAL)
        };
        let election = Heartbeat::new(heartbeat).map_err(|error| error.to_string())?;
        let keeper = ElectionDriver::new(election, me, &members, INTERVAL, TIMEOUT_MAX);
        let (world, seen) = (Rc::clone(world), Rc::clone(seen));
        actors.push(Some(Process::Member(Box::new(Follower { member, keeper, me, world, seen }))));
    }
    let client = ClientId(0);
    let me = topology.client_process(client);
    let client = Client::new(world.fabric(me), Arc::clone(topology), client, limits, SALT, 1)
        .map_err(|error| error.to_string())?;
    actors.push(Some(Process::Client(Box::new(Caller { client, me, due_ns: 0, world: Rc::clone(world) }))));
    Ok(actors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fail_over_takes_at_least_the_detection_and_is_the_same_each_time() {
        let first = outage(7, 3).unwrap();
        assert_eq!(first, outage(7, 3).unwrap());
        assert!(first > TIMEOUT_MIN.as_nanos() as u64 / 2, "{first}");
        assert!(first < 5 * TIMEOUT_MAX.as_nanos() as u64, "{first}");
    }
}
