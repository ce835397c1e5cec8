//! M7 genuineness: a message causes work only at its sender and at its destinations. No other process posts or receives
//! a remote operation on its behalf.

use crate::cluster::Cluster;
use crate::event::{Event, EventKind};
use crate::ids::Process;
use crate::log::{Kept, Log, Message, Origin};
use crate::report::Verdict;
use crate::view::View;

/// Checks remote operations as they are recorded. An operation that does not fit a recorded multicast is checked again
/// at the end, because the multicast may be recorded later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Genuineness {
    seen: bool,
    /// Operations to check at the end, with the index of their message.
    open: Vec<(u32, Kept)>,
}

impl Genuineness {
    pub(crate) fn observe(&mut self, event: &Event, origin: Origin, log: &mut Log, cluster: &Cluster) {
        let EventKind::RemoteOp { m, to, .. } = event.kind else { return };
        self.seen = true;
        let index = log.message(m);
        if stranger(&log.messages[index as usize], event.process, to, cluster).is_some() {
            self.open.push((index, Kept { event: *event, origin }));
        }
    }

    pub(crate) fn check(&self, view: &View<'_>) -> Verdict {
        if !self.seen {
            return Verdict::NotChecked("no remote operations were recorded");
        }
        let mut lacking = None;
        for (index, kept) in &self.open {
            let EventKind::RemoteOp { to, .. } = kept.event.kind else { continue };
            let message = &view.log.messages[*index as usize];
            let is_own = view.cluster.entry_group(message.id.client).is_some();
            if message.sent.is_none() && !is_own && !view.records.would_have(message.id) {
                lacking = Some(message.id.client);
                continue;
            }
            if let Some(stranger) = stranger(message, kept.event.process, to, view.cluster) {
                let (process, text) = (view.name(stranger), view.text(*index));
                let why = if message.sent.is_some() {
                    "is neither its sender nor a destination"
                } else {
                    "no multicast of it is recorded"
                };
                let summary = format!("{process} took part in {text} and {why}");
                return view.example(summary).multicast(*index).kept(kept).violated();
            }
        }
        lacking.map_or(Verdict::Ok, |client| view.lacks_record(client))
    }
}

/// Returns the process of the two that is neither the sender nor a destination of the message. A message without a
/// recorded multicast has no participants, unless it is an entry of a group.
fn stranger(message: &Message, by: Process, to: Process, cluster: &Cluster) -> Option<Process> {
    let Some(sent) = &message.sent else {
        // An entry that was not delivered is known only to the members of its group.
        let group = cluster.entry_group(message.id.client);
        let is_strange = |process: &Process| group.is_none() || cluster.group_of(*process) != group;
        return [by, to].into_iter().find(is_strange);
    };
    let concerned = |process: Process| {
        let destination = cluster.group_of(process).is_some_and(|group| sent.multicast.to.contains(group));
        destination || process == sent.process || process == message.id.client
    };
    [by, to].into_iter().find(|process| !concerned(*process))
}
