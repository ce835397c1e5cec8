//! A process of a broadcast on its fabric, without the type erasure of [`Broadcast`](super::Broadcast).

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use stentor_fabric::{Idle, ProcessId, WaitMode};
use stentor_neb::{Authority, BroadcastError as Refusal, Config, Mode, Node};

use super::error::Problem;
use super::{Heard, NotSent};
use crate::pace::Pace;
use crate::runtime::{FabricDiagnostics, now_ns};

/// Interval between checks for refusals of this process.
const LOOK: Duration = Duration::from_millis(100);
/// Time for which refusals must last before they are final, if the fabric reports that waiting does not help. One of
/// the two processes may be restarting.
const SETTLED: Duration = Duration::from_secs(1);
/// Time for which other refusals must last before they are final. An example is shared memory, where the refusal of a
/// restarted process is not reported as lasting.
const UNSETTLED: Duration = Duration::from_secs(5);

/// A process of a broadcast.
pub(super) struct Core<F: FabricDiagnostics> {
    node: Node<F>,
    /// The names of all processes.
    names: Vec<String>,
    /// A copy of the node's configuration, for use while the node is borrowed by a step.
    config: Config,
    pace: Pace,
    next_look: Instant,
    beginning: Beginning,
    /// The processes that refuse this one, each with its reason and whether the refusal is lasting.
    refused: BTreeMap<ProcessId, (String, bool)>,
    refused_since: Option<Instant>,
    /// `true` if another process was connected at any check.
    has_met: bool,
}

/// The start of a broadcast. All processes are awaited first, so that none misses a message. If the mode tolerates
/// processes that stop, the broadcast also starts when a sufficient number has been connected for the configured
/// patience. After the start, flow control alone decides what may be sent.
#[derive(Debug, Default)]
struct Beginning {
    has_begun: bool,
    /// Time since which a sufficient number of processes has been connected.
    enough_since: Option<u64>,
}

impl Beginning {
    fn look(&mut self, all_there: bool, others: usize, config: &Config, now_ns: u64) -> bool {
        if self.has_begun || all_there {
            self.has_begun = true;
            return true;
        }
        if others < config.must_credit() {
            self.enough_since = None;
            return false;
        }
        let since = *self.enough_since.get_or_insert(now_ns);
        self.has_begun = config.mode != Mode::All && now_ns.saturating_sub(since) >= config.patience_ns;
        self.has_begun
    }
}

impl<F: FabricDiagnostics> Core<F> {
    pub(super) fn new(
        fabric: F,
        config: Config,
        salt: u64,
        authority: Option<Authority>,
        names: Vec<String>,
        wait: WaitMode,
    ) -> Result<Core<F>, Problem> {
        fabric.carrier().iter().for_each(|line| log::info!("{}: {line}", names[fabric.me().index()]));
        let node = Node::new(fabric, config, salt, authority).map_err(Problem::Node)?;
        Ok(Core {
            config: *node.config(),
            node,
            names,
            pace: Pace::new(wait),
            next_look: Instant::now(),
            beginning: Beginning::default(),
            refused: BTreeMap::new(),
            refused_since: None,
            has_met: false,
        })
    }

    /// Runs one round. Returns whether there was any work.
    #[inline]
    fn round(&mut self, each: &mut impl FnMut(Heard<'_>)) -> Result<bool, Problem> {
        let Core { node, names, config, pace, .. } = self;
        pace.begin_round();
        let mut worked = pace.is_rare() && node.housekeep();
        worked |= node.step(&mut |notice| each(Heard::from(notice, names, config)));
        if !worked {
            worked = node.housekeep();
            self.look()?;
        }
        self.pace.note(worked);
        Ok(worked)
    }

    fn look(&mut self) -> Result<(), Problem> {
        let now = Instant::now();
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + LOOK;
        let Core { node, names, refused, .. } = self;
        let own = &names[node.me().index()];
        while let Some(trouble) = node.fabric_mut().next_trouble() {
            log::warn!("{own}: {trouble}");
        }
        while let Some(refusal) = node.fabric_mut().next_refusal() {
            let told = refusal.tell(|process| names.get(process.index()).map_or("?", String::as_str).to_owned());
            log::warn!("{own}: {told}");
            // A refusal by an unauthenticated process that only claims to belong to the broadcast is not conclusive.
            if let Some(peer) = refusal.peer.filter(|_| refusal.certain) {
                refused.insert(peer, (told, refusal.lasting));
            }
        }
        refused.retain(|peer, _| !node.fabric().sees(*peer));
        self.has_met |= node.connected_others() > 0;
        if refused.is_empty() || self.has_met {
            self.refused_since = None;
            return Ok(());
        }
        let since = *self.refused_since.get_or_insert(now);
        let most = (names.len() - 1) / 2 + 1;
        let lasting = refused.values().filter(|(_, lasting)| *lasting).count();
        let enough = if lasting >= most { SETTLED } else { UNSETTLED };
        if refused.len() >= most && now - since >= enough {
            let why: Vec<&str> = refused.values().map(|(why, _)| why.as_str()).collect();
            return Err(Problem::NotLetIn(why.join("; ")));
        }
        Ok(())
    }

    /// Runs one or several rounds. Returns for how long the process can sleep, or `None` if another round should
    /// follow.
    #[inline]
    pub(super) fn turn(&mut self, each: &mut impl FnMut(Heard<'_>)) -> Result<Option<Duration>, Problem> {
        loop {
            let worked = self.round(each)?;
            match self.pace.after(worked) {
                Idle::Poll => return Ok(None),
                Idle::Arm => self.node.fabric_mut().arm(),
                Idle::Sleep => return Ok(Some(Pace::longest_sleep(self.descriptor().is_some()))),
            }
        }
    }

    pub(super) fn sleep(&mut self, longest: Duration) -> Result<(), Problem> {
        self.node.fabric_mut().wait(longest).map(|_| ()).map_err(Problem::Wait)
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.node.fabric().descriptor()
    }

    #[inline]
    pub(super) fn send(&mut self, payload: &[u8]) -> Result<u64, NotSent> {
        let now = now_ns();
        if !self.has_begun(now) {
            return Err(NotSent::NotBegun);
        }
        self.node.broadcast(now, 0, payload).map_err(|error| match error {
            Refusal::Full => NotSent::Full,
            Refusal::TooLong { bytes, limit } => NotSent::TooLong { bytes, limit },
            Refusal::Removed => NotSent::Removed,
        })
    }

    #[inline]
    pub(super) fn has_begun(&mut self, now: u64) -> bool {
        let Core { node, beginning, .. } = self;
        beginning.has_begun || beginning.look(node.is_connected(), node.connected_others(), node.config(), now)
    }

    pub(super) fn has_left(&self) -> bool {
        self.node.has_left()
    }

    pub(super) fn absent(&self) -> Vec<&str> {
        let fabric = self.node.fabric();
        let is_absent = |at: &usize| *at != fabric.me().index() && !fabric.sees(ProcessId(*at as u16));
        (0..self.names.len()).filter(is_absent).map(|at| self.names[at].as_str()).collect()
    }

    pub(super) fn name(&self) -> &str {
        &self.names[self.node.me().index()]
    }
}

#[cfg(test)]
mod tests {
    use stentor_neb::FaultModel;

    use super::*;

    #[test]
    fn a_quorum_begins_after_its_patience_and_mode_all_waits_for_all_processes() {
        let quorum = Config { patience_ns: 100, ..Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1) };
        let mut beginning = Beginning::default();
        assert!(!beginning.look(false, 1, &quorum, 0) && !beginning.look(false, 1, &quorum, 1000), "too few");
        assert!(!beginning.look(false, 2, &quorum, 1000) && !beginning.look(false, 2, &quorum, 1099));
        assert!(!beginning.look(false, 1, &quorum, 1100) && !beginning.look(false, 2, &quorum, 1101), "it counts anew");
        assert!(
            beginning.look(false, 2, &quorum, 1201) && beginning.look(false, 0, &quorum, 1202),
            "once begun, for good"
        );
        assert!(Beginning::default().look(true, 3, &quorum, 0));
        let all = Config { patience_ns: 100, ..Config::new(4, Mode::All, 0) };
        let mut beginning = Beginning::default();
        assert!(!beginning.look(false, 3, &all, 0) && !beginning.look(false, 3, &all, 1 << 60));
    }
}
