//! Fail-overs in virtual time: one group with the real member and the real election, links of 1 µs, and a leader that
//! crashes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use stentor::config::ElectionTimes;
use stentor::runtime::{Client, ClientId, Delivered, ElectionDriver, GroupId, Member, Presence, stateless};
use stentor_election::{Heartbeat, HeartbeatConfig};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Actor, Delay, NetworkModel, SimConfig, SimFabric, SimRng, World};
use stentor_multicast::{Limits, ReplicaConfig, Topology};
use stentor_support::Failure;

use super::load::PAYLOAD_BYTES;

/// Time between two multicasts of the client, in nanoseconds.
const PACE_NS: u64 = 10_000;
/// Length of the interval in which the leader crashes, in nanoseconds.
const SPREAD_NS: u64 = 1_000_000;
/// Longest time from the crash to the delivery that ends the outage, in nanoseconds.
const LONGEST_NS: u64 = 50_000_000;
const SALT: u64 = 0x6661_696c_6f76_6572;

/// The way in which members detect a leader's crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sign {
    /// Interval at which members check the heartbeats of each other.
    pub(super) interval: Duration,
    /// Silence after which a leader may be suspected, at the earliest.
    pub(super) timeout_min: Duration,
    /// Silence after which a leader is suspected in any case.
    pub(super) timeout_max: Duration,
    /// Time from the crash to the notification of the other members. With `None` there is no notification, and the
    /// members must detect the crash themselves.
    pub(super) told_after: Option<Duration>,
    /// Time that the group runs before the crash, in nanoseconds.
    settles_ns: u64,
}

impl Sign {
    /// Frequent heartbeats, and no notification.
    pub(super) const SILENCE: Sign = Sign {
        interval: Duration::from_micros(10),
        timeout_min: Duration::from_micros(100),
        timeout_max: Duration::from_micros(200),
        told_after: None,
        settles_ns: 2_000_000,
    };

    /// The default timeouts of a cluster, and a kernel that notifies the members.
    pub(super) fn told() -> Sign {
        let ElectionTimes { min, max } = ElectionTimes::default();
        Sign {
            interval: ElectionTimes::INTERVAL,
            timeout_min: min,
            timeout_max: max,
            told_after: Some(Duration::from_micros(20)),
            settles_ns: 100_000_000,
        }
    }
}

/// Returns a network whose links take 1 µs one way. A process polls its memory every 1 µs, which is about the time of a
/// member's step with a message.
fn network() -> NetworkModel {
    NetworkModel { propagation: Delay::exactly(1_000), step: Delay::exactly(1_000), ..NetworkModel::calm() }
}

/// The events that the actors have recorded.
#[derive(Default)]
struct Seen {
    /// Time, number of the ballot, and multicast time of each delivery.
    deliveries: Vec<(u64, u64, u64)>,
    leader: Option<(u64, ProcessId)>,
    /// The time at which the other processes are notified of a crash, and the process that has crashed.
    died: Option<(u64, ProcessId)>,
}

enum Process {
    Member(Box<Follower>),
    Client(Box<Caller>),
}

struct Follower {
    member: Member<SimFabric>,
    keeper: ElectionDriver<Heartbeat>,
    interval_ns: u64,
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
        let note = |d: &Delivered<'_>| {
            let sent = d.payload.first_chunk().map_or(0, |sent| u64::from_le_bytes(*sent));
            seen.borrow_mut().deliveries.push((now_ns, d.ballot.number(), sent));
        };
        worked |= self.member.step(now, &mut stateless(note));
        let died = seen.borrow().died.filter(|(told, _)| *told <= now_ns).map(|(_, process)| process);
        self.keeper.watch(|process| if Some(process) == died { Presence::Died } else { Presence::There });
        self.keeper.round(now, &mut self.member);
        let replica = self.member.replica();
        let mut seen = self.seen.borrow_mut();
        if replica.is_leader() && seen.leader.is_none_or(|(ballot, _)| ballot < replica.ballot().number()) {
            seen.leader = Some((replica.ballot().number(), self.me));
        }
        self.world.wake_at(self.me, now_ns + self.interval_ns);
        worked || self.member.is_fencing()
    }
}

impl Caller {
    fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        // A message that finds no room or no connection is sent a little later.
        if now_ns >= self.due_ns && self.client.submit(&[GroupId(0)], &payload(now_ns), true).is_ok() {
            worked = true;
            self.due_ns = now_ns + PACE_NS;
        }
        self.world.wake_at(self.me, self.due_ns.max(now_ns + PACE_NS / 10));
        worked
    }
}

/// Returns a payload that contains the time of sending.
fn payload(now_ns: u64) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [7; PAYLOAD_BYTES];
    payload[..8].copy_from_slice(&now_ns.to_le_bytes());
    payload
}

/// Returns the time in nanoseconds from the crash of a leader, or from the notification of the other members, to the
/// first delivery of a message that was sent after the crash. The group has `replicas` members.
pub(super) fn outage(seed: u64, replicas: usize, sign: Sign) -> Result<u64, Failure> {
    let stuck =
        |what: &str| Failure::run(format_args!("{what}; seed {seed}"), "bench failover", "report this as a bug");
    let topology = Arc::new(Topology::new(&[replicas], 1).map_err(|error| stuck(&error.to_string()))?);
    let world = Rc::new(World::new(SimConfig::new(topology.processes(), seed, network())));
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut actors = actors(&topology, &world, &seen, sign).map_err(|error| stuck(&error))?;
    let at = sign.settles_ns + SimRng::new(seed, 1).below(SPREAD_NS);
    world.run(&mut actors, at, |_, _| false);
    let (ballot, leader) = seen.borrow().leader.ok_or_else(|| stuck("nobody led"))?;
    world.crash(leader);
    let from = at + sign.told_after.map_or(0, |after| after.as_nanos() as u64);
    if sign.told_after.is_some() {
        seen.borrow_mut().died = Some((from, leader));
        topology.members(GroupId(0)).for_each(|member| world.wake_at(member, from));
    }
    let counts = |(_, number, sent): &(u64, u64, u64)| *number > ballot && *sent > at;
    if !world.run(&mut actors, at + LONGEST_NS, |_, _| seen.borrow().deliveries.last().is_some_and(counts)) {
        return Err(stuck("nothing was delivered after the leader crashed"));
    }
    let first = seen.borrow().deliveries.iter().rfind(|delivery| counts(delivery)).map_or(0, |(t, ..)| *t);
    Ok(first.saturating_sub(from))
}

fn actors(
    topology: &Arc<Topology>,
    world: &Rc<World>,
    seen: &Rc<RefCell<Seen>>,
    sign: Sign,
) -> Result<Vec<Option<Process>>, String> {
    let limits = Limits { message_bytes: PAYLOAD_BYTES, window: 256, ..Limits::default() };
    let members: Vec<ProcessId> = topology.members(GroupId(0)).collect();
    let mut actors = Vec::new();
    for &me in &members {
        let config = ReplicaConfig::new(Arc::clone(topology), me, limits.window);
        let mut member = Member::new(world.fabric(me), config, limits, SALT, 1).map_err(|error| error.to_string())?;
        if sign.told_after.is_none() {
            member.set_tick(sign.interval);
        }
        let heartbeat = HeartbeatConfig {
            timeout_min: sign.timeout_min,
            timeout_max: sign.timeout_max,
            ..HeartbeatConfig::new(me, &members, sign.interval)
        };
        let election = Heartbeat::new(heartbeat).map_err(|error| error.to_string())?;
        let keeper = ElectionDriver::new(election, me, &members, sign.interval, sign.timeout_max);
        let (world, seen, interval_ns) = (Rc::clone(world), Rc::clone(seen), sign.interval.as_nanos() as u64);
        let follower = Follower { member, keeper, interval_ns, me, world, seen };
        actors.push(Some(Process::Member(Box::new(follower))));
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
        let (sign, ns) = (Sign::SILENCE, |time: Duration| time.as_nanos() as u64);
        let first = outage(7, 3, sign).unwrap();
        assert_eq!(first, outage(7, 3, sign).unwrap());
        assert!(first > ns(sign.timeout_min) / 2, "{first}");
        assert!(first < 5 * ns(sign.timeout_max), "{first}");
    }

    #[test]
    fn notified_members_wait_for_no_timeout_and_no_interval() {
        let sign = Sign::told();
        let first = outage(7, 3, sign).unwrap();
        assert_eq!(first, outage(7, 3, sign).unwrap());
        assert!(first < sign.interval.as_nanos() as u64 / 10, "{first}");
    }
}
