//! The cluster, the sessions and the faults of one seed of sessions.

use stentor_multicast::Limits;
use stentor_session::{Body, COMMAND_OVERHEAD, ReplyRecord, SessionLimits};

use super::counts::SessionCounts;
use super::served::TOKEN_BYTES;
use crate::chance::Chance;
use crate::faulty_run::RECOVERY_STEPS;
use crate::nemesis::Profile;
use crate::scenario as multicast;

/// The stream of random choices of the scenario.
const STREAM: u64 = 700;
/// The stream of random choices about reads.
pub(super) const READS: u64 = 701;
/// The stream of random choices about timers.
const TIMERS: u64 = 703;
/// The stream of random choices about upgrades.
pub(super) const UPGRADES: u64 = 704;
/// Number of upgrades of each process in a run with upgrades.
pub(super) const UPGRADES_EACH: usize = 3;
/// Maximum size of a reply that is kept completely, in bytes.
pub(super) const REPLY_BYTES: u32 = 40;
/// Size of a record without its head, in bytes: a reply, or the pairs of a session in four groups.
const RECORD_BYTES: usize = 80;
/// Size of a record per group, in bytes, for sessions in more than four groups.
const RECORD_PAIR_BYTES: usize = 20;
/// Usual number of processes in drawn clusters.
const PROCESSES: u64 = 12;
/// Usual number of calls of all clients in drawn clusters.
const CALLS: u64 = 120;

/// The cluster of a service, and the load of its clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of members of each group.
    pub groups: Vec<usize>,
    /// Number of clients.
    pub clients: u16,
    /// Maximum number of calls per client id.
    pub calls: u64,
    /// Maximum size of a command or a query, in bytes.
    pub command_bytes: u32,
    /// Maximum size of a reply, in bytes.
    pub reply_bytes: u32,
}

impl Shape {
    /// Returns the maximum number of steps until all requests complete. It grows with the numbers of processes and
    /// calls relative to a drawn cluster.
    pub(super) fn recovery_steps(&self) -> u64 {
        let processes = self.groups.iter().sum::<usize>() as u64 + u64::from(self.clients);
        let calls = self.calls * u64::from(self.clients);
        RECOVERY_STEPS * (1 + processes / PROCESSES + calls / CALLS)
    }
}

/// The scenario of one seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The groups, clients, network and limits of the multicast.
    pub base: multicast::Scenario,
    /// The fault profile.
    pub profile: Profile,
    /// Number of commands per client id.
    pub commands: u64,
    /// Number of remaining commands at which the session is ended and another one is opened. `None`: one session is
    /// used for all commands.
    pub ends_at: Option<u64>,
    /// The limits of all tables.
    pub sessions: SessionLimits,
    /// Time to live of a session, in nanoseconds.
    pub ttl_ns: u64,
    /// Time for which a delivered command may be without a reply before its client asks, in nanoseconds. `None`:
    /// clients never ask.
    pub unanswered_ns: Option<u64>,
    /// Time after which the session's own command is sent again, in nanoseconds.
    pub again_ns: u64,
    /// Time after which a command is given up, in nanoseconds. `None`: never.
    pub patience_ns: Option<u64>,
    /// Time after which a copy of a command is sent, in nanoseconds. `None`: never.
    pub copies_ns: Option<u64>,
    /// Mean time between two reads of a client outside the order, in nanoseconds. `None`: there are no reads.
    pub reads_ns: Option<u64>,
    /// `true` if groups order time entries when the end of a session or a timer is due.
    pub time_entries: bool,
    /// `true` if the service of drawn runs sets timers.
    pub timers: bool,
    /// `true` if programs are upgraded during the run, so groups order version entries.
    pub upgrades: bool,
}

impl Scenario {
    /// Draws the scenario of a seed.
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
        // These choices have streams of their own, so they change no other choice. Seeds with reads have neither timers
        // nor upgrades: rare events of reads are known at some of these seeds.
        let timers = reads_ns.is_none() && Chance::new(seed, TIMERS).pick(&[true, true, true, false]);
        let upgrades = reads_ns.is_none() && Chance::new(seed, UPGRADES).pick(&[true, false]);
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
            time_entries: reads_ns.is_some() || timers || upgrades,
            timers,
            upgrades,
            base,
        }
    }

    /// Draws the scenario of a seed for another service. It equals that of [`draw`](Scenario::draw), except for the
    /// parameters that depend on the shape, and without drawn reads, timers and upgrades.
    #[must_use]
    pub fn of_shape(seed: u64, shape: &Shape) -> Self {
        let mut scenario = Scenario::draw(seed);
        let (limits, sessions) = (&mut scenario.base.limits, &mut scenario.sessions);
        let groups = shape.groups.len();
        // A record must also have room for the pairs of a session.
        let record = RECORD_BYTES.max(RECORD_PAIR_BYTES * groups).max(shape.reply_bytes as usize);
        limits.message_bytes = limits.message_bytes.max(COMMAND_OVERHEAD + TOKEN_BYTES + shape.command_bytes as usize);
        limits.message_bytes =
            limits.message_bytes.max(COMMAND_OVERHEAD + Body::HEAD_BYTES + Body::PAIR_BYTES * groups);
        limits.reply_bytes = ReplyRecord::HEAD_BYTES + record;
        limits.reply_ring_bytes = limits.reply_ring_bytes.max(2 * limits.reply_bytes as u64);
        sessions.reply_bytes = shape.reply_bytes;
        sessions.sessions =
            sessions.sessions.saturating_add_signed(i32::from(shape.clients) - i32::from(scenario.base.clients)).max(1);
        (scenario.reads_ns, scenario.timers, scenario.upgrades) = (None, false, false);
        scenario.base.groups.clone_from(&shape.groups);
        scenario.base.clients = shape.clients;
        let calls = shape.calls.max(1);
        scenario.ends_at = scenario.ends_at.map(|_| calls / 2).filter(|left| *left > 0);
        scenario.base.pause_ns = scenario.base.pause_ns * scenario.commands / calls;
        scenario.commands = calls;
        scenario
    }

    /// Returns the names of the counts that must not be 0 after a simulation run of enough seeds.
    #[must_use]
    pub fn claims() -> &'static [&'static str] {
        &SessionCounts::CLAIMS
    }
}
