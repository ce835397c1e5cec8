//! Kills the leader of the first group half-way through a demonstration, and restarts it later.

use std::path::PathBuf;

use stentor::runtime::{Client, FabricDiagnostics, Recorder, now_ns};
use stentor_checker::{Event, EventKind};
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::{HistoryFile, read_history, trim_history};

use super::cluster::Nodes;

/// A crash. Times are in nanoseconds on the clock of the histories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crash {
    pub(super) process: ProcessId,
    /// Time just before the signal.
    pub(super) killed: u64,
    /// Time just before the restart.
    pub(super) restarted: u64,
    /// Time at which the client counted the process for flow control again, which means that the process had caught up.
    /// 0 until then.
    pub(super) back: u64,
}

/// Kills the leader and restarts it.
pub(super) struct LeaderKill<'a> {
    pub(super) nodes: &'a Nodes<'a>,
    pub(super) crash: Option<Crash>,
}

impl LeaderKill<'_> {
    /// Kills the leader of the first group.
    pub(super) fn kill(&mut self, recorder: &mut Recorder<HistoryFile>) -> Result<(), Failure> {
        let process = self.leader()?;
        let killed = now_ns();
        self.nodes.kill(process)?;
        let path = self.history(process);
        trim_history(&path)?;
        recorder.crash(now_ns(), process, 1).map_err(|error| Failure::cannot_write(&path, &error))?;
        self.crash = Some(Crash { process, killed, restarted: 0, back: 0 });
        Ok(())
    }

    /// Restarts the killed process.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let Some(crash) = &mut self.crash else { return Ok(()) };
        crash.restarted = now_ns();
        self.nodes.restart(crash.process)
    }

    /// Returns `false` from the restart of the killed process until the process is back, and `true` otherwise.
    pub(super) fn is_back<F: FabricDiagnostics>(&mut self, client: &Client<F>) -> bool {
        match &mut self.crash {
            Some(crash) if crash.restarted > 0 && crash.back == 0 => {
                if client.counts_on(crash.process) {
                    crash.back = now_ns();
                }
                crash.back > 0
            }
            _ => true,
        }
    }

    fn history(&self, process: ProcessId) -> PathBuf {
        self.nodes.stage.history(self.nodes.plan, process, 1)
    }

    /// Returns the latest leader of the first group, according to the histories. Nodes write changes of the leader at
    /// once.
    fn leader(&self) -> Result<ProcessId, Failure> {
        let mut last = (0, ProcessId(0));
        let topology = self.nodes.plan.topology();
        let group = topology.group_ids().next().expect("the topology has a group");
        for process in topology.members(group) {
            let (reader, mut cluster) = read_history(&self.history(process))?;
            let mut reader = reader.tolerate_cut_off_line();
            while let Some(Event { kind, .. }) = reader.next_event(&mut cluster)? {
                if let EventKind::Epoch { ballot, .. } = kind {
                    last = last.max((ballot, process));
                }
            }
        }
        Ok(last.1)
    }
}
