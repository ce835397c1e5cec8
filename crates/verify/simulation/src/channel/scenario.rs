//! The processes, the messages and the faults of one seed of the channel.

use stentor_channel::{Config, EndpointConfig, Mutant, Scheme};
use stentor_fabric::ProcessId;
use stentor_fabric_conformance::Faults;
use stentor_fabric_sim::{Fault, FaultPlan, NetworkModel};

use crate::chance::Chance;

/// The kind of fault in a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trouble {
    /// No fault other than delays and reordering. Every message must arrive, and every connection must close, in both
    /// of its lives.
    None,
    /// A process crashes.
    Crash,
    /// A link is cut for longer than the retries take.
    Cut,
    /// An application aborts its connections.
    Abort,
}

/// The scenario of one seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of processes. Each process is connected with all others.
    pub processes: u16,
    /// Parameters of all endpoints.
    pub endpoint: EndpointConfig,
    /// Number of messages at each end of each connection, in each of its lives.
    pub messages: u64,
    /// Maximum size of a message, in bytes.
    pub longest: u64,
    /// Number of lives of each connection, which are opened in sequence under the same number.
    pub rounds: u32,
    /// Maximum pause between two messages, in nanoseconds.
    pub pause_ns: u64,
    /// The disorder of completions and arrivals.
    pub disorders: Faults,
    /// The network's delays, and the reordering that it may do.
    pub network: NetworkModel,
    /// The kind of fault.
    pub trouble: Trouble,
    /// The crashes and cuts, with their times.
    pub plan: FaultPlan,
    /// The process that aborts its connections, and the time in nanoseconds.
    pub gives_up: Option<(ProcessId, u64)>,
}

/// Maximum duration of a run, in nanoseconds of virtual time.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;
/// Maximum number of steps of a run, for all processes together.
pub(crate) const MOST_STEPS: u64 = 1_000_000;
/// Time by which all queue pairs are connected, in nanoseconds of virtual time.
const CONNECTED_NS: u64 = 50_000;
/// Number of receives for control messages of a connection, without the one for the hello.
const CONTROLS: u32 = stentor_channel::CONTROLS;

impl Scenario {
    /// Returns the names of the counts that must not be 0 after a simulation run of at least 100 seeds.
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

    /// Draws all parameters from the seed.
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
        // The completion queue has room for all posted receives, and for 1, 4 or 64 further completions.
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
            // A process that crashes before it is connected is not reported as failed, and the others would wait for
            // it.
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
