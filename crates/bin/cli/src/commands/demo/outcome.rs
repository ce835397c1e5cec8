//! Times from the histories: each message's multicast is joined with its deliveries, all on one clock.

use stentor::runtime::ClusterRuntime;
use stentor_checker::{Event, EventKind, Process};
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::{Latency, read_history};

use super::load::Sent;
use super::stage::Stage;

/// Times of one message, in nanoseconds; `None` if the event did not happen.
#[derive(Clone, Copy, Default)]
struct Times {
    multicast: Option<u64>,
    last_delivery: Option<u64>,
    /// First delivery in the first group, whose leader is killed.
    first_there: Option<u64>,
}

/// The results of reading the histories.
pub(super) struct Outcome {
    /// Number of deliveries, by process.
    pub(super) deliveries: Vec<u64>,
    /// Number of leader changes until all messages were delivered.
    pub(super) leader_changes: u64,
    /// Time from the kill to the next leader's first delivery, and from the restart until the process was back. In
    /// nanoseconds.
    pub(super) outage: Option<(u64, u64)>,
    /// Time from the kill to the first delivery, in the group that lost its leader, of a message that was multicast
    /// after the kill. In nanoseconds.
    pub(super) failover: Option<u64>,
    /// Times from the multicast to the last delivery, of the messages that were sent one at a time.
    pub(super) latency: Latency,
    /// Rate of the windowed messages, from the first multicast to the last delivery. If there are none, the rate of the
    /// messages that were sent one at a time.
    pub(super) rate: Rate,
}

/// A number of messages and a time.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) messages: u64,
    pub(super) seconds: f64,
}

impl Rate {
    pub(super) fn per_second(self) -> f64 {
        if self.seconds > 0.0 { self.messages as f64 / self.seconds } else { 0.0 }
    }
}

impl Outcome {
    pub(super) fn read(plan: &ClusterRuntime, stage: &Stage, sent: &Sent) -> Result<Self, Failure> {
        let mut times = vec![Times::default(); sent.messages as usize + 1];
        let mut deliveries = vec![0; plan.topology().processes()];
        let first_group = plan.topology().group_ids().next().map(|group| plan.topology().members(group));
        let first_group: Vec<_> = first_group.into_iter().flatten().map(ProcessId::index).collect();
        let in_first_group = |process: Process| first_group.contains(&process.index());
        let mut reigns = Vec::new();
        let mut takeover = Takeover::default();
        for path in stage.histories(plan, sent.crash.map(|crash| crash.process)) {
            takeover.begun = false;
            let (mut reader, mut cluster) = read_history(&path)?;
            while let Some(Event { t, process, kind, .. }) = reader.next_event(&mut cluster)? {
                match kind {
                    EventKind::Multicast(multicast) => {
                        let times = times.get_mut(multicast.m.sequence as usize);
                        times.into_iter().for_each(|times| times.multicast = Some(t));
                    }
                    EventKind::Deliver(deliver) => {
                        deliveries[process.index()] += 1;
                        let times = times.get_mut(deliver.m.sequence as usize);
                        times.into_iter().for_each(|times| times.delivered(t, in_first_group(process)));
                        takeover.delivered(t);
                    }
                    EventKind::Epoch { group, ballot, leader, .. } if t <= sent.ended => {
                        reigns.push((group.index(), ballot, leader));
                        let after = sent.crash.is_some_and(|crash| t > crash.killed && group.index() == 0);
                        takeover.begun = takeover.begun || after;
                    }
                    _ => {}
                }
            }
        }
        let latency = latency(&times, sent);
        let failover = sent.crash.and_then(|crash| failover(&times, crash.killed));
        let outage = sent.crash.zip(takeover.first);
        let outage = outage.map(|(crash, first)| (first - crash.killed, crash.back.saturating_sub(crash.restarted)));
        reigns.sort_unstable();
        let other = |pair: &&[(usize, u64, Process)]| pair[0].0 == pair[1].0 && pair[0].2 != pair[1].2;
        let leader_changes = reigns.windows(2).filter(other).count() as u64;
        Ok(Outcome { deliveries, leader_changes, outage, failover, latency, rate: rate(&times, sent) })
    }
}

/// The first delivery of a leader after the kill.
#[derive(Default)]
struct Takeover {
    /// `true` once the history that is being read shows that its process leads the first group after the kill.
    begun: bool,
    first: Option<u64>,
}

impl Takeover {
    fn delivered(&mut self, t: u64) {
        if self.begun && self.first.is_none_or(|first| t < first) {
            self.first = Some(t);
        }
    }
}

impl Times {
    fn delivered(&mut self, t: u64, in_first_group: bool) {
        self.last_delivery = self.last_delivery.max(Some(t));
        if in_first_group && self.first_there.is_none_or(|first| t < first) {
            self.first_there = Some(t);
        }
    }
}

/// Returns the time from the kill to the first delivery, in the first group, of a message that was multicast after the
/// kill.
fn failover(times: &[Times], killed: u64) -> Option<u64> {
    let after = times.iter().filter(|times| times.multicast.is_some_and(|t| t > killed));
    after.filter_map(|times| times.first_there).min().map(|first| first.saturating_sub(killed))
}

fn latency(times: &[Times], sent: &Sent) -> Latency {
    let mut latency = Latency::default();
    for sequence in sent.alone.clone() {
        let Times { multicast, last_delivery, .. } = times[sequence as usize];
        if let (Some(from), Some(to)) = (multicast, last_delivery) {
            latency.record(to.saturating_sub(from));
        }
    }
    latency
}

fn rate(times: &[Times], sent: &Sent) -> Rate {
    let range = if sent.windowed.is_empty() { &sent.alone } else { &sent.windowed };
    let times = &times[*range.start() as usize..=*range.end() as usize];
    let begin = times.iter().filter_map(|times| times.multicast).min().unwrap_or(0);
    let end = times.iter().filter_map(|times| times.last_delivery).max().unwrap_or(begin);
    Rate { messages: times.len() as u64, seconds: end.saturating_sub(begin) as f64 / 1e9 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failover_ends_with_the_first_delivery_multicast_after_the_kill() {
        let mut times = [Times::default(); 3];
        (times[0].multicast, times[1].multicast, times[2].multicast) = (Some(90), Some(110), Some(120));
        assert_eq!(failover(&times, 100), None);
        // Messages that were in flight before the kill do not count, nor do deliveries in another group.
        times[0].delivered(105, true);
        times[1].delivered(107, false);
        times[1].delivered(190, true);
        times[1].delivered(180, true);
        times[2].delivered(185, true);
        assert_eq!(failover(&times, 100), Some(80));
        assert_eq!(times[1].last_delivery, Some(190));
    }
}
