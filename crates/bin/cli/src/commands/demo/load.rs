//! The client: it sends some messages one at a time, and the remaining messages as fast as the window allows.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use stentor::runtime::{Counts, FabricDiagnostics, GroupId, now_ns};
use stentor_support::Failure;
use stentor_support::live::{Joined, RecordedClient, absent};

use super::leader_kill::{Crash, LeaderKill};
use super::text::destinations;
use super::{Scene, TIMEOUT};

/// Maximum number of messages that are sent one at a time, to measure their latency.
const ALONE: usize = 1000;
/// Number of messages among those sent alone that are warm-up, if there are enough messages.
const WARM_UP: usize = 100;
/// Time between messages from the restart of the killed process until it is back.
const PACE: Duration = Duration::from_millis(1);
/// Number of rounds between two checks of the other processes.
const ROUNDS_PER_LOOK: u32 = 256;

/// The messages that were sent.
pub(super) struct Sent {
    pub(super) messages: u64,
    /// Number of messages to one group.
    pub(super) to_one: u64,
    /// Sequences of the messages that were sent one at a time, without the warm-up.
    pub(super) alone: std::ops::RangeInclusive<u64>,
    /// Sequences of the messages that were sent as fast as possible. The range is empty if the text is short.
    pub(super) windowed: std::ops::RangeInclusive<u64>,
    pub(super) counts: Counts,
    /// The provider that carried the client's data, if it is chosen at start.
    pub(super) carrier: Option<String>,
    /// Errors of the fabric that the user should know.
    pub(super) troubles: Vec<String>,
    /// The process that was killed.
    pub(super) crash: Option<Crash>,
    /// Time at which all messages were delivered at all their destinations.
    pub(super) ended: u64,
}

/// A client with its history.
pub(super) struct Loader<'a, F: FabricDiagnostics> {
    scene: Scene<'a>,
    bar: &'a ProgressBar,
    own: RecordedClient<F>,
    rounds: u32,
    leader_kill: Option<LeaderKill<'a>>,
    /// Time at which the number of delivered messages last rose.
    progress: Instant,
    delivered: u64,
}

impl<'a, F: FabricDiagnostics> Loader<'a, F> {
    pub(super) fn new(
        scene: Scene<'a>,
        bar: &'a ProgressBar,
        joined: Joined<F>,
        leader_kill: Option<LeaderKill<'a>>,
    ) -> Result<Self, Failure> {
        let Scene { args, plan, stage, .. } = scene;
        let path = stage.history(plan, plan.topology().client_process(joined.id), 1);
        let mut own = RecordedClient::new(plan, joined, &path, args.wait.into(), "stentor demo")?;
        own.client.record_operations();
        Ok(Loader { scene, bar, own, rounds: 0, leader_kill, progress: Instant::now(), delivered: 0 })
    }

    /// Waits until the network makes copies for all groups, but not longer than [`TIMEOUT`].
    pub(super) fn wait_for_copies(&mut self) -> Result<(), Failure> {
        let (all, since): (Vec<_>, _) = (self.scene.plan.topology().group_ids().collect(), Instant::now());
        while !self.own.client.is_copied(&all) && since.elapsed() < TIMEOUT {
            self.progress = Instant::now();
            self.round(false)?;
        }
        Ok(())
    }

    pub(super) fn run(mut self) -> Result<Sent, Failure> {
        let lines = &self.scene.text.lines;
        let groups = self.scene.plan.topology().groups();
        let sets: Vec<Vec<GroupId>> = lines.iter().map(|line| destinations(line, groups)).collect();
        let alone = lines.len().min(ALONE);
        let notify = last_of_each_group(&sets);
        for (n, line) in lines.iter().enumerate() {
            self.play(n, lines.len())?;
            self.send(&sets[n], line, n < alone || notify.contains(&n))?;
            while n < alone && self.own.client.outstanding() > 0 {
                self.round(false)?;
            }
        }
        // The client waits only for a majority, but the properties concern all members.
        while self.own.client.outstanding() > 0 || !self.is_back() || !self.own.client.is_delivered_everywhere() {
            self.round(false)?;
        }
        let ended = now_ns();
        self.own.recorder.complete().map_err(|error| self.own.unwritten(&error))?;
        if let Some(unfinished) = self.own.client.fabric_mut().finish() {
            return Err(Failure::run(unfinished, "--pcap", "make room on the disk, or leave out --pcap"));
        }
        let warm_up = if alone >= 2 * WARM_UP { WARM_UP } else { 0 };
        Ok(Sent {
            messages: self.own.client.submitted(),
            to_one: sets.iter().filter(|to| to.len() == 1).count() as u64,
            alone: warm_up as u64 + 1..=alone as u64,
            windowed: alone as u64 + 1..=lines.len() as u64,
            counts: *self.own.client.counts(),
            carrier: self.own.client.fabric().carrier(),
            troubles: self.own.client.fabric_mut().last_troubles(),
            crash: self.leader_kill.and_then(|leader_kill| leader_kill.crash),
            ended,
        })
    }

    /// Takes the action that is due before message `n` of `all`: kills the leader half-way, and restarts it after three
    /// quarters. From the restart until the process is back, messages are sent slowly, so that it rejoins under load.
    /// The last tenth of the messages waits until it is back.
    fn play(&mut self, n: usize, all: usize) -> Result<(), Failure> {
        let Some(leader_kill) = &mut self.leader_kill else { return Ok(()) };
        if n == all / 2 {
            return leader_kill.kill(&mut self.own.recorder);
        }
        if n == all / 2 + all / 4 {
            return leader_kill.restart();
        }
        let since = Instant::now();
        while !self.is_back() && (since.elapsed() < PACE || n >= all - all / 10) {
            self.round(false)?;
        }
        Ok(())
    }

    /// Returns `false` from the restart of the killed process until the process is back, and `true` otherwise.
    fn is_back(&mut self) -> bool {
        self.leader_kill.as_mut().is_none_or(|leader_kill| leader_kill.is_back(&self.own.client))
    }

    fn send(&mut self, to: &[GroupId], line: &[u8], notify: bool) -> Result<(), Failure> {
        while self.own.submit(to, line, notify, false)?.is_none() {
            self.round(false)?;
        }
        Ok(())
    }

    fn round(&mut self, submitted: bool) -> Result<(), Failure> {
        let worked = self.own.round(submitted)?;
        if self.own.client.delivered_up_to() > self.delivered {
            self.delivered = self.own.client.delivered_up_to();
            self.progress = Instant::now();
        }
        self.rounds += 1;
        if worked && !self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            return Ok(());
        }
        if self.rounds.is_multiple_of(ROUNDS_PER_LOOK) || self.progress.elapsed().as_millis() > 20 {
            self.bar.set_position(self.delivered);
            (self.scene.check)()?;
        }
        if self.progress.elapsed() > TIMEOUT { Err(self.stuck()) } else { Ok(()) }
    }

    fn stuck(&self) -> Failure {
        let all: Vec<_> = self.scene.plan.topology().group_ids().collect();
        let gone = absent(self.scene.plan, &self.own.client, &all);
        let gone = if gone.is_empty() { String::new() } else { format!("; not there: {}", gone.join(", ")) };
        let what = format_args!("no delivery for {TIMEOUT:?}, {} are outstanding{gone}", self.own.client.outstanding());
        Failure::run(what, "stentor demo", "give the demonstration more processors, or report this as a bug")
    }
}

/// Returns the last message of each group. After it, members must report their deliveries at once, because no later
/// message causes a report.
fn last_of_each_group(sets: &[Vec<GroupId>]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let last = sets.iter().enumerate().rev().filter(|(_, to)| to.iter().any(|group| seen.insert(*group)));
    last.map(|(n, _)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_message_of_each_group_is_found() {
        let sets =
            [vec![GroupId(0)], vec![GroupId(0), GroupId(2)], vec![GroupId(1)], vec![GroupId(0)], vec![GroupId(1)]];
        assert_eq!(last_of_each_group(&sets), [1, 3, 4].into());
    }
}
