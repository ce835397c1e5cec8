//! The cluster, the load and the faults of one seed of the multicast.

use stentor_fabric_sim::{FaultMix, FaultPlan, NetworkModel};
use stentor_multicast::{Limits, Variant};

use crate::catch_ups;
use crate::chance::Chance;
use crate::clocks;
use crate::forgets;
use crate::nemesis::{Nemesis, Profile};
use crate::sets::{self, Sets};
use crate::transfers;

/// The scenario of one seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Number of members of each group.
    pub groups: Vec<usize>,
    /// Number of clients.
    pub clients: u16,
    /// Number of messages of each client.
    pub messages: u64,
    /// The window and the sizes of rings. They are small, so that all windows and rings wrap around.
    pub limits: Limits,
    /// The variant of the protocol.
    pub variant: Variant,
    /// The network's delays, and the reordering that it may do.
    pub network: NetworkModel,
    /// The faults of processes and links.
    pub mix: FaultMix,
    /// Maximum pause of a client between two messages, in nanoseconds. With 0 it sends as fast as the window permits.
    pub pause_ns: u64,
    /// Number of messages that a client sends without a pause, if there is room.
    pub burst: u64,
    /// `true`: three of four messages have at least half the maximum size. `false`: one in ten messages has any size up
    /// to the maximum, and all others have at most 64 bytes.
    pub large: bool,
    /// Time after which an unreachable client may be declared failed, in nanoseconds. `None`: never. In that case every
    /// client id is taken over after a crash, and no client loses its id without a successor.
    pub client_timeout_ns: Option<u64>,
    /// Size of the state of each application without its digest, in bytes.
    pub state_bytes: usize,
    /// Time after which a member that frees nothing is expelled from flow control, in nanoseconds. `None`: never.
    pub expel_ns: Option<u64>,
    /// `true` if leaders order time entries from time to time.
    pub time_entries: bool,
}

/// Maximum duration of a run, in nanoseconds of virtual time. A run without lasting faults ends after a few
/// milliseconds.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;

/// Maximum number of steps of a run, for all processes together. It is about 20 times the number of steps of the
/// longest run.
pub(crate) const MOST_STEPS: u64 = 500_000;

/// Timeout of clients, in nanoseconds. It is shorter than many cuts, so clients that are up may be declared failed.
const CLIENT_TIMEOUT_NS: u64 = 300_000;

/// Time until expulsion, in nanoseconds. It is longer than any time in which a healthy member frees nothing, and much
/// shorter than a stop.
const EXPEL_NS: u64 = 400_000;

/// One in `CROWDED` runs of profile `all` is crowded: see `crowded`.
const CROWDED: u64 = 8;

/// Minimum number of seeds for which the claims are checked. With fewer seeds, a kind of fault may be missing by
/// chance.
const CLAIMED_FROM_SEEDS: u64 = 100;

impl Scenario {
    /// Returns the names of the [`FaultCounts`](stentor_fabric_sim::FaultCounts) that must not be 0 after a simulation
    /// run of calm scenarios: the effects of the adversarial network on writes over reliable queue pairs, and the
    /// faults of the mix. Effects on operations that the multicast does not use without failures (READs, receives,
    /// unreliable queue pairs, revocations) are not included, and neither are crashes, which do not occur.
    #[must_use]
    pub const fn claims() -> &'static [&'static str] {
        &[
            "reordered_across_queue_pairs",
            "torn_writes",
            "steps_on_torn_memory",
            "early_completions",
            "late_writes",
            "late_source_reads",
            "held_by_partition",
            "partitions",
            "one_way_partitions",
            "stalls",
        ]
    }

    /// Returns the names of the counts that must not be 0 after a simulation run under a profile. They include the
    /// [`NemesisCounts`](crate::NemesisCounts) of the profile.
    #[must_use]
    pub fn claims_under(profile: Profile) -> Vec<&'static str> {
        const NETWORK: usize = 6;
        const OF_RINGS: [&str; 3] = ["bodies_held_already", "space_credits", "ring_waits"];
        const OF_FAILURES: [&str; 7] = [
            "revocations",
            "writes_in_flight_at_revocation",
            "partial_writes_at_revocation",
            "partial_writes_at_crash",
            "retry_exceeded",
            "flushed",
            "clients_superseded",
        ];
        const OF_STOPS: [&str; 2] = ["members_expelled", "members_expelled_by_clients"];
        match profile {
            Profile::Rings => [&Scenario::claims()[..NETWORK], &OF_RINGS, &profile.claims()].concat(),
            Profile::Calm => Scenario::claims().to_vec(),
            Profile::All => [&Scenario::claims()[..NETWORK], &OF_FAILURES, &profile.claims()].concat(),
            Profile::Rejoins => [&Scenario::claims()[..NETWORK], &catch_ups::CLAIMS, &profile.claims()].concat(),
            Profile::States => [&Scenario::claims()[..NETWORK], &transfers::CLAIMS, &profile.claims()].concat(),
            Profile::Stops => [&Scenario::claims()[..NETWORK], &OF_STOPS, &profile.claims()].concat(),
            Profile::Forgets => [&Scenario::claims()[..NETWORK], &forgets::CLAIMS, &profile.claims()].concat(),
            Profile::Clocks => [&Scenario::claims()[..NETWORK], &clocks::CLAIMS, &profile.claims()].concat(),
            _ => [&Scenario::claims()[..NETWORK], &profile.claims()].concat(),
        }
    }

    /// Draws the scenario of a seed under a profile. For the calm profile, this is [`Scenario::draw`]. For other
    /// profiles, it is a cluster of 2 or 3 groups, or of 1 or 2 under [`Profile::Rings`], with a load that lasts about
    /// as long as the faults. Except under [`Profile::Forgets`], at least one group may lose a member. Queue pairs
    /// usually break sooner than in calm runs, so that breaks occur within a run.
    #[must_use]
    pub fn draw_under(seed: u64, profile: Profile) -> Self {
        if profile == Profile::Calm {
            return Scenario::draw(seed);
        }
        if profile == Profile::Rings {
            return Scenario::draw_rings(seed);
        }
        let mut chance = Chance::new(seed, 400);
        let mut groups: Vec<usize> = vec![chance.pick(&[3, 3, 5])];
        groups.extend((0..chance.between(1, 2)).map(|_| chance.pick(&[1, 2, 3, 3, 3, 5])));
        let clients = chance.between(2, 3) as u16;
        let messages = chance.between(20, 40);
        Scenario {
            groups,
            clients,
            messages,
            limits: Limits {
                message_bytes: 1536,
                window: chance.pick(&[2, 4, 8, 16]),
                body_ring_bytes: chance.pick(&[2048, 8192]),
                control_ring_bytes: 4096,
                ..Limits::default()
            },
            variant: chance.pick(&[Variant::V2, Variant::V2, Variant::V2, Variant::V2, Variant::V1]),
            network: NetworkModel { retry_ns: 200_000, ..NetworkModel::adversarial() },
            mix: FaultMix::default(),
            pause_ns: 2 * Nemesis::UNTIL_NS / messages,
            burst: 1,
            large: false,
            client_timeout_ns: chance.pick(&[None, Some(CLIENT_TIMEOUT_NS), Some(CLIENT_TIMEOUT_NS)]),
            state_bytes: 0,
            expel_ns: Chance::new(seed, 407).pick(&[None, None, Some(EXPEL_NS)]),
            time_entries: false,
        }
        .crowded(seed, profile)
        .rejoining(seed, profile)
        .stopping(seed, profile)
        .forgetting(seed, profile)
    }

    /// Draws clusters whose rings hold a few records while their windows hold more, with clients that fill them.
    fn draw_rings(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 404);
        let mut groups: Vec<usize> = vec![chance.pick(&[3, 3, 5])];
        groups.extend((0..chance.between(0, 1)).map(|_| chance.pick(&[1, 2, 3])));
        let (burst, bursts) = (chance.pick(&[4, 8, 16]), chance.between(6, 12));
        Scenario {
            groups,
            clients: chance.between(1, 3) as u16,
            messages: burst * bursts,
            limits: Limits {
                message_bytes: chance.pick(&[512, 1536, 4096]),
                window: chance.pick(&[16, 32]),
                // The size is rounded up to two of the longest records.
                body_ring_bytes: chance.pick(&[0, 4096]),
                control_ring_bytes: 4096,
                ..Limits::default()
            },
            variant: chance.pick(&[Variant::V2, Variant::V2, Variant::V2, Variant::V1]),
            network: NetworkModel { retry_ns: 200_000, ..NetworkModel::adversarial() },
            mix: FaultMix::default(),
            pause_ns: 2 * Nemesis::UNTIL_NS / bursts,
            burst,
            large: true,
            client_timeout_ns: None,
            state_bytes: 0,
            expel_ns: None,
            time_entries: false,
        }
    }

    /// Adds fan-out sets, if the run has them.
    #[must_use]
    pub fn choose(mut self, seed: u64, sets: Sets) -> Self {
        self.network.hardware_multicast = sets.has(seed, 402);
        self
    }

    /// Returns the times at which the fan-out sets of this run break, independent of its other faults.
    pub(crate) fn set_faults(&self, seed: u64, until_ns: u64) -> FaultPlan {
        if self.network.hardware_multicast { sets::breaks(seed, 403, until_ns) } else { FaultPlan::new() }
    }

    /// Makes one in [`CROWDED`] runs of profile `all` crowded: its rings are small relative to its windows, and clients
    /// fill them repeatedly. Streams then stall for lack of room, even while states are installed.
    fn crowded(self, seed: u64, profile: Profile) -> Self {
        // A separate stream of random choices, so that other draws remain unchanged.
        let mut chance = Chance::new(seed, 401);
        if profile != Profile::All || chance.between(0, CROWDED - 1) > 0 {
            return self;
        }
        let (burst, bursts) = (chance.pick(&[64, 128]), chance.between(3, 6));
        let limits = Limits { message_bytes: 256, window: 128, body_ring_bytes: 32 << 10, ..self.limits };
        Scenario { messages: burst * bursts, limits, pause_ns: 2 * Nemesis::UNTIL_NS / bursts, burst, ..self }
    }

    /// Changes the scenario for profiles with rejoins under load. Every group may lose a member, and clients repeatedly
    /// send a window of messages at once. A leader's state is large relative to the ring that it is sent through, so
    /// the leader's stream overtakes it.
    fn rejoining(self, seed: u64, profile: Profile) -> Self {
        if profile != Profile::Rejoins && profile != Profile::States {
            return self;
        }
        let mut chance = Chance::new(seed, 404);
        let groups: Vec<usize> = self.groups.iter().map(|_| chance.pick(&[3, 3, 5])).collect();
        let (burst, bursts, pause_ns) = (32, chance.between(16, 24), chance.pick(&[100_000, 200_000]));
        let limits = Limits { message_bytes: 256, window: 32, body_ring_bytes: 32 << 10, ..self.limits };
        let large = if profile == Profile::States { chance.pick(&[12 << 10, 40 << 10, 100 << 10]) } else { 0 };
        Scenario { groups, messages: burst * bursts, limits, pause_ns, burst, state_bytes: large, ..self }
    }

    /// Changes the scenario for the profile with stops: clients continuously fill small windows and rings of groups of
    /// three and five. An expelled member receives the missing deliveries. In half of the runs, it receives them with a
    /// state that is larger than a ring.
    fn stopping(self, seed: u64, profile: Profile) -> Self {
        if profile != Profile::Stops {
            return self;
        }
        let mut chance = Chance::new(seed, 406);
        let groups: Vec<usize> = self.groups.iter().map(|_| chance.pick(&[3, 3, 5])).collect();
        let burst = chance.pick(&[1, 4, 16]);
        let bursts = 160 / burst;
        let limits = Limits {
            message_bytes: chance.pick(&[256, 1024]),
            window: chance.pick(&[4, 8, 16]),
            body_ring_bytes: chance.pick(&[0, 8192]),
            ..self.limits
        };
        let network = NetworkModel { retry_ns: chance.pick(&[200_000, 20_000_000]), ..NetworkModel::adversarial() };
        let pause_ns = 2 * Nemesis::UNTIL_NS / bursts;
        let (messages, expel_ns, client_timeout_ns) = (burst * bursts, Some(EXPEL_NS), None);
        let state_bytes = chance.pick(&[0, 0, 12 << 10, 40 << 10]);
        Scenario {
            groups,
            messages,
            limits,
            network,
            pause_ns,
            burst,
            state_bytes,
            expel_ns,
            client_timeout_ns,
            ..self
        }
    }

    /// Changes the scenario for the profile with memory losses: clusters of three groups, or of two in one of four
    /// runs. No client is declared failed. A client that learns that a group began anew ends, and the next process
    /// takes over its id.
    fn forgetting(self, seed: u64, profile: Profile) -> Self {
        if profile != Profile::Forgets {
            return self;
        }
        let mut chance = Chance::new(seed, 409);
        let count = chance.pick(&[2, 3, 3, 3]);
        let groups: Vec<usize> = (0..count).map(|_| chance.pick(&[1, 2, 3, 3, 3])).collect();
        let messages = chance.between(20, 60);
        let limits = Limits { window: chance.pick(&[4, 8, 16]), ..self.limits };
        let pause_ns = 2 * Nemesis::UNTIL_NS / messages;
        Scenario { groups, messages, limits, pause_ns, client_timeout_ns: None, ..self }
    }

    /// Draws a cluster of 3 or 4 groups, at least 200 messages to mixed destinations, every ordering fault that the
    /// fabric contract permits, stalls, and short partitions that break no connection. No process crashes.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 0);
        let groups: Vec<usize> = (0..chance.between(3, 4)).map(|_| chance.pick(&[1, 1, 2, 3, 3, 3, 5])).collect();
        let clients = chance.between(2, 4) as u16;
        let limits = Limits {
            message_bytes: 1536,
            window: chance.pick(&[2, 4, 8, 16]),
            body_ring_bytes: chance.pick(&[2048, 8192]),
            control_ring_bytes: 4096,
            ..Limits::default()
        };
        let mix = FaultMix {
            count: 6,
            from_ns: 20_000,
            until_ns: 600_000,
            longest_ns: 60_000,
            stall: 3,
            partition: 1,
            one_way: 2,
            ..FaultMix::default()
        };
        Scenario {
            groups,
            clients,
            messages: 200_u64.div_ceil(u64::from(clients)) + chance.between(0, 8),
            limits,
            variant: chance.pick(&[Variant::V2, Variant::V2, Variant::V2, Variant::V2, Variant::V1]),
            network: NetworkModel::adversarial(),
            mix,
            pause_ns: chance.pick(&[0, 0, 2_000, 20_000]),
            burst: 1,
            large: false,
            client_timeout_ns: None,
            state_bytes: 0,
            expel_ns: None,
            time_entries: false,
        }
    }
}

/// Returns the claimed kinds of faults that did not occur. Returns none if there are too few seeds for the claim.
pub(crate) fn unseen(claims: &[&'static str], seeds: u64, counted: &[(&'static str, u64)]) -> Vec<&'static str> {
    if seeds < CLAIMED_FROM_SEEDS {
        return Vec::new();
    }
    let seen = |claim: &str| counted.iter().any(|(name, count)| *name == claim && *count > 0);
    claims.iter().copied().filter(|claim| !seen(claim)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nemesis::NemesisCounts;
    use stentor_fabric_sim::FaultCounts;
    use stentor_multicast::{CatchUps, ClockCounts};

    #[test]
    fn every_claim_has_a_count_and_a_missing_one_is_reported() {
        let catch_ups = catch_ups::named(CatchUps::default());
        let transfers = transfers::TransferCounts::default().named();
        let clocks = clocks::named(ClockCounts::default(), 0);
        let faults = [FaultCounts::default().named(), NemesisCounts::default().named()].concat();
        let forgets = forgets::ForgetCounts::default().named();
        let nothing = [faults, catch_ups, transfers, clocks, forgets].concat();
        for profile in Profile::ALL {
            let claims = Scenario::claims_under(profile);
            assert!(claims.iter().all(|claim| nothing.iter().any(|(name, _)| name == claim)), "{profile}");
            assert_eq!(unseen(&claims, 100, &nothing), claims);
            assert!(unseen(&claims, 99, &nothing).is_empty());
        }
        let claims = Scenario::claims_under(Profile::All);
        assert!(!claims.contains(&"stalls") && claims.contains(&"torn_writes") && claims.contains(&"flaps"));
        let stalled = FaultCounts { stalls: 1, ..FaultCounts::default() };
        assert!(!unseen(Scenario::claims(), 100, &stalled.named()).contains(&"stalls"));
    }
}
