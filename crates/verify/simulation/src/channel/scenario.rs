//! The processes, the messages and the faults of one seed.

use stentor_channel::{Config, EndpointConfig, Mutant, Scheme};
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::Faults;
use stentor_fabric_sim::{Fault, FaultPlan, NetworkModel};

use crate::chance::Chance;

/// What goes wrong in a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trouble {
    /// Nothing but delays and disorder: everything must arrive, and every connection must close, twice.
    None,
    /// A process crashes.
    Crash,
    /// A link is cut for longer than the retries take.
    Cut,
    /// An application gives its connections up.
    Abort,
}

/// What one seed runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// How many processes, each connected with all others.
    pub processes: u16,
    /// Parameters of all endpoints.
    pub endpoint: EndpointConfig,
    /// Messages of each end of each connection, and of each of its lives.
    pub messages: u64,
    /// The longest message, bytes.
    pub longest: u64,
    /// How often connections are opened, one after the other under the same number.
    pub rounds: u32,
    /// The longest pause between two messages, ns.
    pub pause_ns: u64,
    /// What completions and arrivals do.
    pub disorders: Faults,
    /// Delays and liberties.
    pub network: NetworkModel,
    /// What goes wrong.
    pub trouble: Trouble,
    /// Crashes and cuts.
    pub plan: FaultPlan,
    /// Who gives up, and when, ns.
    pub gives_up: Option<(ProcessId, u64)>,
}

/// Runs take no longer than this, virtual time, ns.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;
/// No run takes more steps, all processes together.
pub(crate) const MOST_STEPS: u64 = 1_000_000;
/// By then all queue pairs are connected, virtual time, ns.
const CONNECTED_NS: u64 = 50_000;
/// Receives for control messages of a connection, besides that for the greeting.
const CONTROLS: u32 = stentor_channel::CONTROLS;

impl Scenario {
    /// What simulation runs of at least 100 seeds claim to survive.
    #[must_use]
    pub const fn claims() -> &'static [&'static str] {
        &[
            "torn_writes",
            "late_source_reads",
            "crashes",
            "one_way_partitions",
            "retry_exceeded",
            "flushed",
            "completions told before earlier ones",
            "connections that failed",
            "connections closed by both ends",
            "connections given up",
        ]
    }

    /// Draws everything.
    #[must_use]
    pub fn draw(seed: u64, mutant: Mutant) -> Self {
        let mut chance = Chance::new(seed, 0);
        let scheme = chance.pick(&Scheme::ALL);
        let channel = Config {
            message_bytes: 4096,
            eager_bytes: chance.pick(&[0, 8, 64, 512]),
            piece_bytes: chance.pick(&[64, 128, 512]),
            lengths: chance.pick(&[1, 2, 4, 8]),
            pieces: chance.pick(&[1, 2, 4, 8]),
            first_sequence: chance.pick(&[0, u32::MAX, u32::MAX - 5]),
            mutant,
            ..Config::with(scheme)
        }
        .normal();
        let processes = chance.pick(&[2, 2, 3]);
        let connections = chance.pick(&[1, 2, 4]);
        let send_depth = chance.pick(&[2, 16, 128]);
        let endpoint = EndpointConfig { connections, send_depth, ..EndpointConfig::new(channel) };
        let unordered = chance.between(0, 1) == 0;
        let model = if unordered { NetworkModel::unordered() } else { NetworkModel::adversarial() };
        let network =
            NetworkModel { tagged: scheme != Scheme::Counted, retry_ns: chance.pick(&[60_000, 200_000]), ..model };
        // So many that what is posted just fits.
        let recvs =
            (channel.lengths + channel.pieces + CONTROLS + 1) * u32::from(connections) * u32::from(processes - 1);
        let disorders = Faults {
            seed,
            hold_polls: chance.pick(&[0, 2, 8, 30]),
            arrivals: chance.between(0, 1) == 0,
            max_completions: recvs + chance.pick(&[1, 4, 64]),
            ..Faults::completions(seed)
        };
        let trouble = chance.pick(&[Trouble::None, Trouble::None, Trouble::Crash, Trouble::Cut, Trouble::Abort]);
        let at = chance.between(10_000, 150_000);
        let victim = ProcessId(chance.between(0, u64::from(processes) - 1) as u16);
        let mut plan = FaultPlan::new();
        match trouble {
            // Who was never there is waited for: nobody is told of it.
            Trouble::Crash => plan.push((CONNECTED_NS + at, Fault::Crash(victim))),
            Trouble::Cut => {
                let to = ProcessId((victim.0 + 1) % processes);
                plan.push((at, Fault::Cut { from: victim, to, for_ns: 2 * network.retry_ns }));
            }
            Trouble::None | Trouble::Abort => {}
        }
        Scenario {
            processes,
            endpoint,
            messages: chance.between(0, 40),
            longest: chance.pick(&[8, 64, 600, 4096]).min(16 * u64::from(channel.piece_bytes)),
            rounds: if trouble == Trouble::None { 2 } else { 1 },
            pause_ns: chance.pick(&[0, 0, 3_000]),
            disorders,
            network,
            trouble,
            plan,
            gives_up: (trouble == Trouble::Abort).then_some((victim, at)),
        }
    }
}
