//! The model of network and NICs: their delays, and the liberties of the contract that they take.

use stentor_fabric::Capabilities;

use crate::rng::SimRng;

/// A random delay: usually between `least_ns` and `most_ns`, now and then up to `tail_ns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// Minimum, in nanoseconds.
    pub least_ns: u64,
    /// Maximum of the usual delays, in nanoseconds.
    pub most_ns: u64,
    /// Probability of a longer delay, per million.
    pub tail_ppm: u32,
    /// Maximum of the longer delays, in nanoseconds.
    pub tail_ns: u64,
}

impl Delay {
    /// Returns a constant delay.
    #[must_use]
    pub const fn exactly(ns: u64) -> Self {
        Delay { least_ns: ns, most_ns: ns, tail_ppm: 0, tail_ns: ns }
    }

    /// Returns a delay that is uniform between two bounds, in nanoseconds.
    #[must_use]
    pub const fn between(least_ns: u64, most_ns: u64) -> Self {
        Delay { least_ns, most_ns, tail_ppm: 0, tail_ns: most_ns }
    }

    /// Adds a tail to the delay.
    #[must_use]
    pub const fn with_tail(self, tail_ppm: u32, tail_ns: u64) -> Self {
        Delay { tail_ppm, tail_ns, ..self }
    }

    #[inline]
    pub(crate) fn sample(&self, rng: &mut SimRng) -> u64 {
        if rng.chance(self.tail_ppm) {
            return self.most_ns + rng.below(self.tail_ns.saturating_sub(self.most_ns) + 1);
        }
        match self.most_ns - self.least_ns {
            0 => self.least_ns,
            spread => self.least_ns + rng.below(spread + 1),
        }
    }
}

/// Model of the network, the NICs and the processors. The liberties that the contract leaves are fields: 0 or `false`
/// turns one off, except that `ordered_writes` is `true` to turn its liberty off. Probabilities are per million. Rule
/// numbers are those of the contract, at the top of the crate `stentor-fabric`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkModel {
    /// One-way delay of a message.
    pub propagation: Delay,
    /// One-way delay of connection set-up and grants.
    pub control: Delay,
    /// NIC time for each message, in nanoseconds. A process has one NIC, which handles one message at a time.
    pub nic_ns: u64,
    /// Link time for each byte, in picoseconds. Each ordered pair of processes has one link. 80 means 100 Gbit/s; 0 is
    /// infinitely fast.
    pub ps_per_byte: u64,
    /// Delay from the responder's NIC until its CPU sees the data.
    pub landing: Delay,
    /// Delay between the partial landings of one torn write.
    pub tear_gap: Delay,
    /// Delay from a reason to run until the process runs.
    pub step: Delay,
    /// Delay from [`revoke`](stentor_fabric::Fabric::revoke) until it takes effect.
    pub revocation: Delay,
    /// Time without an answer after which a reliable queue pair breaks, in nanoseconds.
    pub retry_ns: u64,
    /// Time between two attempts when the responder has no receive posted, in nanoseconds.
    pub rnr_ns: u64,
    /// Number of attempts after the first.
    pub rnr_retries: u32,

    /// Rule 1: `true` if messages on one queue pair may overtake those on another between the same two processes. Those
    /// on an unreliable queue pair may then also overtake each other.
    pub reorder_across_queue_pairs: bool,
    /// Rule 2: probability that the words of a write (or READ or RECV) become visible in several steps, in any order.
    pub torn_writes: u32,
    /// Rule 3: `true` if a success may be reported before the responder's CPU sees the data.
    pub early_completions: bool,
    /// Probability that the CPU sees a write much later.
    pub late_writes: u32,
    /// Maximum additional delay of a late write, in nanoseconds.
    pub late_ns: u64,
    /// Rule 4: probability that a READ of several words samples them at different times.
    pub torn_reads: u32,
    /// Rule 5: `true` if writes on one queue pair are ordered. EFA has `false`.
    pub ordered_writes: bool,
    /// Probability that the source of a request is read just before the request executes instead of while posting.
    pub late_source_reads: u32,
    /// Probability that a write in flight at a revocation lands in part before it fails.
    pub partial_at_revocation: u32,
    /// Probability that a write of more than 256 bytes lands in part if its process crashes during it.
    pub partial_at_crash: u32,
    /// Probability that a write lands although its responder has broken the connection and has no new one yet. This is
    /// what happens on a slow network if the initiator has not noticed the break, or has crashed.
    pub late_after_break: u32,
    /// Probability that a message on an unreliable queue pair is lost.
    pub lost_unreliable: u32,
    /// `true` if messages leave only at `flush`, `poll` or `wait`.
    pub hold_until_flush: bool,

    /// Value of [`Capabilities::inline_bytes`] at every process.
    pub inline_bytes: u32,
    /// Value of [`Capabilities::max_send_depth`] at every process.
    pub max_send_depth: u32,
    /// Value of [`Capabilities::max_recv_depth`] at every process.
    pub max_recv_depth: u32,
    /// Value of [`Capabilities::max_message_bytes`] at every process.
    pub max_message_bytes: u64,
    /// Value of [`Capabilities::atomics`] at every process.
    pub atomics: bool,
    /// Value of [`Capabilities::unreliable`] at every process.
    pub unreliable: bool,
    /// Value of [`Capabilities::tagged`] at every process.
    pub tagged: bool,
    /// Value of [`Capabilities::hardware_multicast`] at every process. `false` in all models that this type provides.
    pub hardware_multicast: bool,
    /// Delay from the first join until the network forms the set. The processes that have joined meanwhile are its
    /// members.
    pub set_settle: Delay,
    /// Delay until a process notices that one of its sets broke.
    pub set_news: Delay,
    /// Probability that a copy of a set's write is delayed by up to a quarter of `late_copy_ns`.
    pub late_copies: u32,
    /// Maximum time for which copies in flight may stay in the network when a set breaks, in nanoseconds.
    pub late_copy_ns: u64,
    /// Time for which a set waits for members that have not left its last life, in nanoseconds.
    pub set_grace_ns: u64,
}

impl NetworkModel {
    /// Returns a model in which every message and every revocation takes `delay_ns`, and the NICs and processors take
    /// no time. Only the delays of sets are random. The model is for tests that count exactly or measure latencies in
    /// hops. It takes one of the liberties that the contract permits: messages leave only at `flush`, `poll` or `wait`.
    #[must_use]
    pub fn uniform(delay_ns: u64) -> Self {
        NetworkModel {
            propagation: Delay::exactly(delay_ns),
            control: Delay::exactly(delay_ns),
            revocation: Delay::exactly(delay_ns),
            retry_ns: 1_000_000,
            rnr_ns: 10_000,
            rnr_retries: 7,
            ordered_writes: true,
            hold_until_flush: true,
            inline_bytes: 220,
            max_send_depth: 4096,
            max_recv_depth: 4096,
            max_message_bytes: 1 << 30,
            atomics: true,
            unreliable: true,
            set_settle: Delay::between(20_000, 60_000),
            set_news: Delay::between(1_000, 20_000),
            set_grace_ns: 2_000_000,
            ..NetworkModel::default()
        }
    }

    /// Returns a model of a realistic network (about 1 µs, 100 Gbit/s) that takes no more liberties than
    /// [`uniform`](NetworkModel::uniform), except random delays.
    #[must_use]
    pub fn calm() -> Self {
        NetworkModel {
            propagation: Delay::between(600, 1_200),
            control: Delay::between(1_000, 20_000),
            nic_ns: 30,
            ps_per_byte: 80,
            landing: Delay::between(50, 200),
            step: Delay::between(20, 300),
            revocation: Delay::between(1_000, 10_000),
            ..NetworkModel::uniform(0)
        }
    }

    /// Returns a model that often takes every liberty that this type has, except unordered writes (rule 5).
    #[must_use]
    pub fn adversarial() -> Self {
        NetworkModel {
            propagation: Delay::between(500, 2_500).with_tail(50_000, 20_000),
            landing: Delay::between(0, 800).with_tail(20_000, 5_000),
            tear_gap: Delay::between(0, 600).with_tail(20_000, 5_000),
            step: Delay::between(20, 1_000).with_tail(20_000, 15_000),
            revocation: Delay::between(500, 20_000).with_tail(50_000, 200_000),
            reorder_across_queue_pairs: true,
            torn_writes: 500_000,
            early_completions: true,
            late_writes: 20_000,
            late_ns: 40_000,
            torn_reads: 500_000,
            late_source_reads: 500_000,
            partial_at_revocation: 500_000,
            partial_at_crash: 500_000,
            late_after_break: 700_000,
            lost_unreliable: 50_000,
            set_news: Delay::between(1_000, 60_000).with_tail(300_000, 400_000),
            late_copies: 30_000,
            late_copy_ns: 400_000,
            ..NetworkModel::calm()
        }
    }

    /// Returns the [`adversarial`](NetworkModel::adversarial) model with unordered writes (rule 5), as on EFA.
    #[must_use]
    pub fn unordered() -> Self {
        NetworkModel { ordered_writes: false, tagged: true, ..NetworkModel::adversarial() }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sim",
            ordered_writes: self.ordered_writes,
            ordered_bytes: self.torn_writes == 0,
            inline_bytes: self.inline_bytes,
            max_send_depth: self.max_send_depth,
            max_recv_depth: self.max_recv_depth,
            max_message_bytes: self.max_message_bytes,
            atomics: self.atomics,
            unreliable: self.unreliable,
            tagged: self.tagged,
            masks_find_early: self.tagged,
            merges_writes: false,
            loopback: true,
            many_readers: true,
            max_completions: u32::MAX,
            hardware_multicast: self.hardware_multicast,
            revokes_in_hardware: true,
        }
    }
}
