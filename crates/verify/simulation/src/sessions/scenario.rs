//! The cluster, the sessions and the faults of one seed.

use stentor_multicast::Limits;
use stentor_session::{Body, COMMAND_OVERHEAD, ReplyRecord, SessionLimits};

use super::counts::SessionCounts;
use super::served::TOKEN_BYTES;
use crate::chance::Chance;
use crate::faulty_run::RECOVERY_STEPS;
use crate::nemesis::Profile;
use crate::scenario as multicast;

/// The stream of choices of the scenario.
const STREAM: u64 = 700;
/// The stream of what is drawn of reads.
pub(super) const READS: u64 = 701;
/// A reply that has this many bytes at most is kept whole.
pub(super) const REPLY_BYTES: u32 = 40;
/// Beside the head of a record: a reply, or the pairs of a session in four groups.
const RECORD_BYTES: usize = 80;
/// The same for each group, where there are more.
const RECORD_PAIR_BYTES: usize = 20;
/// So many processes and so many calls of all clients are usual in drawn clusters.
const PROCESSES: u64 = 12;
const CALLS: u64 = 120;

/// The cluster of a service, and how much its clients call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Members of each group.
    pub groups: Vec<usize>,
    /// Clients.
    pub clients: u16,
    /// The most calls of each client's place.
    pub calls: u64,
    /// The longest command or query.
    pub command_bytes: u32,
    /// The longest reply.
    pub reply_bytes: u32,
}

impl Shape {
    /// Returns the steps within which everything comes to its end: those of a drawn cluster, and more for more processes and calls.
    pub(super) fn recovery_steps(&self) -> u64 {
        let processes = self.groups.iter().sum::<usize>() as u64 + u64::from(self.clients);
        let calls = self.calls * u64::from(self.clients);
        RECOVERY_STEPS * (1 + processes / PROCESSES + calls / CALLS)
    }
}

/// What one seed runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Groups, clients, network and limits of the multicast.
    pub base: multicast::Scenario,
    /// The mix of faults.
    pub profile: Profile,
    /// Commands of each client's place.
    pub commands: u64,
    /// When so many of them are left the session is ended, and another one opened; `None`: one session serves for all.
    pub ends_at: Option<u64>,
    /// Limits of all tables.
    pub sessions: SessionLimits,
    /// How long a session lives, ns.
    pub ttl_ns: u64,
    /// How long a delivered command may be without a reply before its client asks, ns; `None`: clients never ask.
    pub unanswered_ns: Option<u64>,
    /// After this a command of the session goes out again, ns.
    pub again_ns: u64,
    /// After this a command is given up, ns; `None`: never.
    pub patience_ns: Option<u64>,
    /// After this a copy of a command is sent, ns; `None`: never.
    pub copies_ns: Option<u64>,
    /// The mean time between two reads of a client, outside the order, ns; `None`: there are none.
    pub reads_ns: Option<u64>,
    /// Whether groups order time entries, where a session ends or a timer is due.
    pub time_entries: bool,
}

impl Scenario {
    /// What a seed runs.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, STREAM);
        let profile = chance.pick(&[
            Profile::All,
            Profile::All,
            Profile::All,
            Profile::Failover,
            Profile::Partition,
            Profile::Clients,
            Profile::Stops,
            Profile::Stops,
        ]);
        let mut base = multicast::Scenario::draw_under(seed, profile);
        let window = chance.pick(&[2, 4, 8]);
        base.limits = Limits {
            message_bytes: 256,
            window,
            body_ring_bytes: chance.pick(&[0, 2048, 8192]),
            control_ring_bytes: 4096,
            reply_bytes: ReplyRecord::HEAD_BYTES + RECORD_BYTES,
            reply_ring_bytes: chance.pick(&[0, 0, 4096]),
            ..Limits::default()
        };
        base.state_bytes = 0;
        let commands = chance.between(12, 40);
        base.pause_ns = chance.pick(&[0, 3_000_000 / commands, 2 * 3_000_000 / commands]);
        let clients = u32::from(base.clients);
        let ttl_ns = chance.pick(&[400_000, 800_000, 2_000_000]);
        let reads_ns = Chance::new(seed, READS).pick(&[None, Some(20_000), Some(100_000)]);
        Scenario {
            profile,
            commands,
            ends_at: chance.pick(&[None, Some(commands / 2)]),
            sessions: SessionLimits {
                sessions: chance.pick(&[clients - 1, clients, 2 * clients]),
                ended: chance.pick(&[0, 1, 4]),
                window,
                reply_bytes: REPLY_BYTES,
                ttl: 2 * ttl_ns,
            },
            ttl_ns,
            unanswered_ns: chance.pick(&[None, Some(60_000), Some(150_000)]),
            again_ns: chance.pick(&[80_000, 200_000]),
            patience_ns: chance.pick(&[None, Some(100_000), Some(400_000)]),
            copies_ns: chance.pick(&[None, Some(50_000), Some(150_000)]),
            reads_ns,
            time_entries: reads_ns.is_some(),
            base,
        }
    }

    /// What a seed runs of another service: everything that [`draw`](Scenario::draw) draws, but for what the shape says.
    #[must_use]
    pub fn of_shape(seed: u64, shape: &Shape) -> Self {
        let mut scenario = Scenario::draw(seed);
        let (limits, sessions) = (&mut scenario.base.limits, &mut scenario.sessions);
        let groups = shape.groups.len();
        // What a table tells of a session is in a record, too.
        let record = RECORD_BYTES.max(RECORD_PAIR_BYTES * groups).max(shape.reply_bytes as usize);
        limits.message_bytes = limits.message_bytes.max(COMMAND_OVERHEAD + TOKEN_BYTES + shape.command_bytes as usize);
        limits.message_bytes =
            limits.message_bytes.max(COMMAND_OVERHEAD + Body::HEAD_BYTES + Body::PAIR_BYTES * groups);
        limits.reply_bytes = ReplyRecord::HEAD_BYTES + record;
        limits.reply_ring_bytes = limits.reply_ring_bytes.max(2 * limits.reply_bytes as u64);
        sessions.reply_bytes = shape.reply_bytes;
        sessions.sessions =
            sessions.sessions.saturating_add_signed(i32::from(shape.clients) - i32::from(scenario.base.clients)).max(1);
        scenario.reads_ns = None;
        scenario.base.groups.clone_from(&shape.groups);
        scenario.base.clients = shape.clients;
        let calls = shape.calls.max(1);
        scenario.ends_at = scenario.ends_at.map(|_| calls / 2).filter(|left| *left > 0);
        scenario.base.pause_ns = scenario.base.pause_ns * scenario.commands / calls;
        scenario.commands = calls;
        scenario
    }

    /// What must happen in a simulation run, by name.
    #[must_use]
    pub fn claims() -> &'static [&'static str] {
        &SessionCounts::CLAIMS
    }
}
