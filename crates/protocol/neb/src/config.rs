//! Fault models, the number of processes that they need, and all sizes.
//!
//! | mode, fault model | processes | quorum | reason |
//! |---|---|---|---|
//! | `quorum`, `lying-hosts` | n ≥ 3f+1 | ⌈(n+f+1)/2⌉ of n | two quorums share f+1 hosts, so a correct one |
//! | `quorum`, `lying-sender` | n−1 ≥ 2f+1 | ⌊(n−1)/2⌋+1 of the n−1 others | two majorities share a host |
//! | `all` | n ≥ 2 | every current member | the process that publishes later reads the other |
//!
//! With `lying-sender` none of the n−1 hosts lies. With `all` every process publishes before it reads.

use std::fmt;

use stentor_fabric::ProcessId;
use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::seal::record_cells;
use thiserror::Error;

use crate::value::{HEAD_WORDS, SIGNATURE_WORDS};
use crate::{Mutant, ProcessSet, mutant};

/// Processes that may lie, in mode `quorum`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultModel {
    /// Up to f processes may lie in every way, also about their memory.
    LyingHosts,
    /// A sender may lie in every way, also about its host's memory. Up to f other processes crash.
    LyingSender,
}

/// Processes that must answer before a broadcast is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// A quorum of the hosts. Safe under any partition and any suspicion.
    Quorum(FaultModel),
    /// Every current member. Safe as long as only stopped processes are removed.
    All,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Quorum(FaultModel::LyingHosts) => "quorum, lying-hosts",
            Mode::Quorum(FaultModel::LyingSender) => "quorum, lying-sender",
            Mode::All => "all",
        })
    }
}

/// Configuration that is equal at all processes of a broadcast.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Number of processes. They are numbered from 0.
    pub processes: usize,
    /// Processes that must answer.
    pub mode: Mode,
    /// f of the fault model. Not used in mode `all`.
    pub faults: usize,
    /// Number of slots of every ring, and of broadcasts of one sender that may be undelivered at a process for which
    /// the sender waits.
    pub window: u32,
    /// Length of the longest payload, in bytes.
    pub payload_bytes: usize,
    /// `true` to deliver an index without reading, once all other processes were seen to replay the same value (mode
    /// `quorum`).
    pub fast_path: bool,
    /// Largest number of rounds of the polling loop in which a process waits for the fast path before it reads. With 0
    /// it reads at once. A process adapts the wait, and waits less where it does not help.
    pub fast_rounds: u32,
    /// Largest number of rounds of the polling loop in which a process waits for a fan-out write before it writes to
    /// each peer itself.
    pub set_rounds: u32,
    /// `true` to deliver own broadcasts at once, before any write has completed.
    pub eager_self: bool,
    /// `true` if values carry signatures.
    pub signed: bool,
    /// In mode `quorum`, time that a sender waits for a process that is a window behind before it continues without it,
    /// in nanoseconds. It always waits for [`must_credit`](Config::must_credit) processes.
    pub patience_ns: u64,
    /// Mutant that is switched on, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

/// Reason why a configuration is invalid.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// There are too few processes for the fault model.
    #[error("{mode} with f = {faults} needs {need}; there are n = {processes} processes: {remedy}")]
    TooFew {
        /// Configured mode.
        mode: Mode,
        /// Configured number of faulty processes, `f`.
        faults: usize,
        /// Required number of processes, as a formula.
        need: String,
        /// Configured number of processes, `n`.
        processes: usize,
        /// Advice for the user.
        remedy: String,
    },
    /// The number of processes is too small to broadcast, or exceeds the 64 that a [`ProcessSet`] holds.
    #[error("{0} processes: a broadcast has 2 to {max}", max = ProcessSet::CAPACITY)]
    Processes(usize),
    /// The window has no slots, or too many.
    #[error("a window of {0} broadcasts: 1 to {max} are possible", max = Config::MAX_WINDOW)]
    Window(u32),
    /// Payloads are too long.
    #[error("payloads of {0} bytes: at most {max} are possible", max = Config::MAX_PAYLOAD_BYTES)]
    Payload(usize),
}

impl Config {
    /// Upper bound of [`window`](Config::window).
    pub const MAX_WINDOW: u32 = 1 << 14;
    /// Upper bound of [`payload_bytes`](Config::payload_bytes).
    pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

    /// Returns the defaults for n processes: window 64, payloads of up to 1 KiB, fast path with a few microseconds of
    /// polling for it, own broadcasts delivered after a majority of write completions, no signatures, 10 s of timeout
    /// for late processes.
    #[must_use]
    pub fn new(processes: usize, mode: Mode, faults: usize) -> Self {
        Config {
            processes,
            mode,
            faults,
            window: 64,
            payload_bytes: 1024,
            fast_path: true,
            fast_rounds: 64,
            set_rounds: 1 << 16,
            eager_self: false,
            signed: false,
            patience_ns: 10_000_000_000,
            mutant: Mutant::None,
        }
    }

    /// Checks the number of processes against the fault model, and the sizes against their limits.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let (n, f) = (self.processes, self.faults);
        if !(2..=ProcessSet::CAPACITY).contains(&n) {
            return Err(ConfigError::Processes(n));
        }
        let (twice, thrice) = (f.saturating_mul(2), f.saturating_mul(3));
        let (enough, need, least) = match self.mode {
            Mode::Quorum(FaultModel::LyingHosts) => {
                let least = thrice.saturating_add(1);
                (n >= least, format!("n ≥ 3f+1 = {least}"), least)
            }
            Mode::Quorum(FaultModel::LyingSender) => {
                let need = twice.saturating_add(1);
                (n > need, format!("n−1 ≥ 2f+1 = {need}"), need.saturating_add(1))
            }
            Mode::All => (true, String::new(), 2),
        };
        if !enough {
            let remedy = format!("have at least {least} processes, or lower `faults`");
            return Err(ConfigError::TooFew { mode: self.mode, faults: f, need, processes: n, remedy });
        }
        if self.window == 0 || self.window > Self::MAX_WINDOW {
            return Err(ConfigError::Window(self.window));
        }
        if self.payload_bytes > Self::MAX_PAYLOAD_BYTES {
            return Err(ConfigError::Payload(self.payload_bytes));
        }
        Ok(())
    }

    /// Returns the set of all processes.
    #[must_use]
    pub fn everybody(&self) -> ProcessSet {
        ProcessSet::first(self.processes)
    }

    /// Returns the hosts that keep the registers of a sender's stream, in mode `quorum`. With `lying-sender` the
    /// sender's host is excluded, because it could show empty registers to two processes that hold different values.
    #[must_use]
    pub fn replicas(&self, sender: ProcessId) -> ProcessSet {
        let all = self.everybody();
        match self.mode {
            Mode::Quorum(FaultModel::LyingSender) if !mutant!(self.mutant, SenderHostCounts) => all.without(sender),
            _ => all,
        }
    }

    /// Returns the number of hosts that form a quorum for a sender's stream, in mode `quorum`.
    #[must_use]
    pub fn quorum(&self) -> usize {
        let n = self.processes;
        match self.mode {
            Mode::Quorum(FaultModel::LyingHosts) if mutant!(self.mutant, PlainMajority) => n / 2 + 1,
            Mode::Quorum(FaultModel::LyingHosts) => n.saturating_add(self.faults).saturating_add(1).div_ceil(2),
            Mode::Quorum(FaultModel::LyingSender) if mutant!(self.mutant, SenderHostCounts) => n / 2 + 1,
            Mode::Quorum(FaultModel::LyingSender) => n.saturating_sub(1) / 2 + 1,
            Mode::All => n,
        }
    }

    /// Returns the number of processes besides the sender that must have freed a slot before it is reused, even after
    /// the timeout.
    #[must_use]
    pub fn must_credit(&self) -> usize {
        match self.mode {
            Mode::All => self.processes.saturating_sub(1),
            Mode::Quorum(_) => self.processes.saturating_sub(1).saturating_sub(self.faults),
        }
    }

    /// Returns the number of other processes that a broadcast must have reached before its sender delivers it. Together
    /// with the sender they are a majority. With [`eager_self`](Config::eager_self) the number is 0.
    #[must_use]
    pub fn own_majority(&self) -> usize {
        if self.eager_self { 0 } else { self.processes / 2 }
    }

    /// Returns the size of the longest value in a slot, in bytes.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        let signature = if self.signed { SIGNATURE_WORDS * WORD } else { 0 };
        HEAD_WORDS * WORD + self.payload_bytes.next_multiple_of(WORD) + signature
    }

    /// Returns the size of a slot, in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        (record_cells(self.value_bytes()) * LINE) as u64
    }

    /// Returns the number of bytes that one process registers. It is fixed at the start.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let layout = crate::Layout::new(self);
        let n = self.processes as u64;
        let registers = if self.mode == Mode::All { 1 } else { n };
        let hosts = if self.mode == Mode::All { n - 1 } else { n };
        (n - 1) * (layout.broadcast_bytes() + layout.control_bytes())
            + registers * layout.register_bytes()
            + layout.own_bytes()
            + hosts * layout.scratch_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);
    const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);

    #[test]
    fn quorums_intersect_in_a_correct_host_and_survive_f_crashes() {
        for n in 2..=40_usize {
            for f in 0..n {
                let config = Config::new(n, HOSTS, f);
                if config.check().is_ok() {
                    let quorum = config.quorum();
                    assert!(2 * quorum - n > f, "n = {n}, f = {f}: quorums of {quorum} may share liars only");
                    assert!(quorum <= n - f, "n = {n}, f = {f}: no quorum of {quorum} without liars");
                }
                let config = Config::new(n, SENDER, f);
                if config.check().is_ok() {
                    assert!(2 * config.quorum() > n - 1 && config.quorum() <= n - 1 - f, "n = {n}, f = {f}");
                    assert!(!config.replicas(ProcessId(0)).contains(ProcessId(0)));
                }
            }
        }
    }

    #[test]
    fn plain_majorities_fail_with_two_liars() {
        let config = Config::new(7, HOSTS, 2);
        let plain = config.processes / 2 + 1;
        assert_eq!((config.quorum(), plain), (5, 4));
        assert!(2 * plain - config.processes <= config.faults, "two majorities may share only the 2 liars");
    }

    #[test]
    fn too_few_processes_are_refused_with_the_formula() {
        let text = |n, mode, f| Config::new(n, mode, f).check().unwrap_err().to_string();
        let hosts = text(3, HOSTS, 1);
        assert!(hosts.contains("lying-hosts with f = 1 needs n ≥ 3f+1 = 4; there are n = 3 processes"), "{hosts}");
        let sender = text(3, SENDER, 1);
        assert!(sender.contains("n−1 ≥ 2f+1 = 3; there are n = 3 processes: have at least 4"), "{sender}");
        assert!(Config::new(4, SENDER, 1).check().is_ok() && Config::new(3, SENDER, 0).check().is_ok());
        assert_eq!(Config::new(1, Mode::All, 0).check(), Err(ConfigError::Processes(1)));
        assert_eq!(Config::new(65, Mode::All, 0).check(), Err(ConfigError::Processes(65)));
        let mut config = Config::new(4, HOSTS, 1);
        config.window = 0;
        assert_eq!(config.check(), Err(ConfigError::Window(0)));
        config.window = 4;
        config.payload_bytes = (1 << 20) + 1;
        assert_eq!(config.check(), Err(ConfigError::Payload((1 << 20) + 1)));
    }
}
