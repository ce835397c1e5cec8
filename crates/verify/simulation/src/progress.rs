//! Tracks whether a run with failures is complete: everything that must be delivered is delivered by all destinations.
//!
//! A message is owed by all its destination groups if its client is up, if it was synced, or if any process delivered
//! it. Messages of a crashed client that were neither synced nor delivered are no longer owed. The run is complete when
//! nothing is owed, no member is down or without memory, and every member has delivered as much as its group. M2, M3
//! and M9 hold then.

use std::collections::HashMap;

use stentor_fabric::ProcessId;
use stentor_multicast::{ClientId, GroupId, MessageId, ProcessRole, Topology};

/// The delivery state of a message.
#[derive(Clone, Debug)]
struct Message {
    to: Vec<GroupId>,
    delivered: Vec<GroupId>,
    owed: bool,
    synced: bool,
}

/// The deliveries that are owed in a run.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    messages: HashMap<MessageId, Message>,
    /// Messages that each client has multicast since its last crash.
    open: Vec<Vec<MessageId>>,
    /// Number of pairs of an owed message and a group that has not delivered it.
    owed: usize,
    /// Number of the last delivery of each member.
    last: Vec<u64>,
    /// The largest number of a delivery in each group.
    most: Vec<u64>,
    /// For each member: `true` if it is down or without memory.
    absent: Vec<bool>,
    /// For each group, the number of messages that it owes, and the time at which it last delivered or began to owe, in
    /// nanoseconds.
    groups: Vec<(usize, u64)>,
    /// For each client, the time since which it has had a message to send and no room, in nanoseconds.
    refused: Vec<Option<u64>>,
    /// The longest time for which a group owed a message and delivered nothing, or for which a client had no room to
    /// send to a group, in nanoseconds, with the end of that time and the group.
    longest_gap: (u64, u64, usize),
}

impl Progress {
    pub(crate) fn new(topology: &Topology) -> Self {
        Progress {
            messages: HashMap::new(),
            open: vec![Vec::new(); topology.clients()],
            owed: 0,
            last: vec![0; topology.all_members()],
            most: vec![0; topology.groups()],
            absent: vec![false; topology.all_members()],
            groups: vec![(0, 0); topology.groups()],
            refused: vec![None; topology.clients()],
            longest_gap: (0, 0, 0),
        }
    }

    pub(crate) fn multicast(&mut self, id: MessageId, to: &[GroupId]) {
        let message = Message { to: to.to_vec(), delivered: Vec::new(), owed: true, synced: false };
        self.owed += to.len();
        self.messages.insert(id, message);
        self.open[usize::from(id.client.0)].push(id);
    }

    /// Records that a message to these groups was multicast.
    pub(crate) fn note_owed(&mut self, now_ns: u64, to: &[GroupId]) {
        for group in to {
            let (owed, since) = &mut self.groups[usize::from(group.0)];
            if *owed == 0 {
                *since = now_ns;
            }
            *owed += 1;
        }
    }

    /// Records that a member of a group delivered a message.
    pub(crate) fn note_delivery(&mut self, now_ns: u64, group: GroupId, first: bool) {
        let (owed, since) = &mut self.groups[usize::from(group.0)];
        if first {
            *since = now_ns;
            *owed = owed.saturating_sub(1);
        }
    }

    /// Records that a client sent a message, or that it had no room to send one.
    pub(crate) fn note_sent(&mut self, now_ns: u64, client: ClientId, to: &[GroupId], sent: bool) {
        let refused = &mut self.refused[usize::from(client.0)];
        if sent {
            *refused = None;
            return;
        }
        let since = *refused.get_or_insert(now_ns);
        let group = to.first().map_or(0, |group| usize::from(group.0));
        self.longest_gap = self.longest_gap.max((now_ns - since, now_ns, group));
    }

    /// Updates the time for which groups have owed a message and delivered nothing. `excused` time does not count. This
    /// is time in which a client is stopped, possibly with a partially written message because its fan-out set or a
    /// connection broke just before, so that other processes wait for the client. It is also time in which a candidate
    /// for leadership installs another member's state.
    pub(crate) fn look(&mut self, now_ns: u64, excused: bool) {
        if excused {
            let waiting = self.groups.iter_mut().map(|(_, since)| since).chain(self.refused.iter_mut().flatten());
            waiting.for_each(|since| *since = now_ns);
        }
        let owing = self.groups.iter().enumerate().filter(|(_, (owed, _))| *owed > 0);
        let gaps = owing.map(|(group, (_, since))| (now_ns.saturating_sub(*since), now_ns, group));
        self.longest_gap = gaps.fold(self.longest_gap, std::cmp::max);
    }

    /// Returns the longest time for which a group owed a message and delivered nothing, or for which a client had no
    /// room to send to a group, in nanoseconds, with the end of that time and the group. Excused time does not count.
    pub(crate) fn longest_gap(&self) -> (u64, u64, usize) {
        self.longest_gap
    }

    pub(crate) fn synced(&mut self, id: MessageId) {
        if let Some(message) = self.messages.get_mut(&id) {
            message.synced = true;
        }
    }

    /// Records a delivery. Returns whether it is the first one of its group.
    pub(crate) fn delivered(&mut self, member: ProcessId, group: GroupId, id: MessageId, number: u64) -> bool {
        self.last[member.index()] = number;
        self.most[usize::from(group.0)] = self.most[usize::from(group.0)].max(number);
        // A message that was not multicast violates M1 instead.
        let Some(message) = self.messages.get_mut(&id) else { return false };
        if !std::mem::replace(&mut message.owed, true) {
            self.owed += message.to.len() - message.delivered.len();
        }
        if !message.delivered.contains(&group) {
            message.delivered.push(group);
            self.owed -= 1;
            return true;
        }
        false
    }

    /// Records that a process crashed.
    pub(crate) fn crashed(&mut self, topology: &Topology, process: ProcessId) {
        match topology.role(process) {
            Some(ProcessRole::Client(client)) => self.client_crashed(client),
            _ => self.member_crashed(process),
        }
    }

    /// Releases the messages of this client that were neither delivered nor synced. They are no longer owed.
    fn client_crashed(&mut self, client: ClientId) {
        for id in std::mem::take(&mut self.open[usize::from(client.0)]) {
            if let Some(message) = self.messages.get_mut(&id)
                && message.delivered.is_empty()
                && !message.synced
            {
                message.owed = false;
                self.owed -= message.to.len();
            }
        }
    }

    fn member_crashed(&mut self, member: ProcessId) {
        self.absent[member.index()] = true;
    }

    /// Records that the member has its group's state after `number` deliveries.
    pub(crate) fn restored(&mut self, member: ProcessId, number: u64) {
        self.absent[member.index()] = false;
        self.last[member.index()] = number;
    }

    /// Describes what is missing, or returns `None` if nothing is.
    pub(crate) fn missing(&self, topology: &Topology) -> Option<String> {
        if let Some(member) = self.absent.iter().position(|absent| *absent) {
            return Some(format!("{} has no state", ProcessId(member as u16)));
        }
        if self.owed > 0 {
            let mut lacking = self.messages.iter().filter(|(_, m)| m.owed && m.delivered.len() < m.to.len());
            let first = lacking.next().map(|(id, m)| format!("{id} to {:?}, delivered by {:?}", m.to, m.delivered));
            return Some(format!("{} deliveries by groups, such as {}", self.owed, first.unwrap_or_default()));
        }
        let behind = topology.group_ids().find_map(|group| {
            let most = self.most[usize::from(group.0)];
            topology.members(group).find(|member| self.last[member.index()] != most)
        });
        behind.map(|member| format!("{member} is behind its group"))
    }

    /// Returns whether nothing is missing.
    pub(crate) fn is_through(&self, topology: &Topology) -> bool {
        self.owed == 0 && self.missing(topology).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_while_a_group_owes_a_message_and_no_client_is_stopped() {
        let topology = Topology::new(&[1, 2], 1).expect("a possible cluster");
        let mut progress = Progress::new(&topology);
        let (client, group) = (ClientId(0), GroupId(1));
        progress.look(90, false);
        assert_eq!(progress.longest_gap(), (0, 0, 0), "nothing is owed");
        progress.note_owed(100, &[group]);
        progress.look(130, false);
        assert_eq!(progress.longest_gap(), (30, 130, 1));
        progress.look(190, true);
        progress.look(230, false);
        assert_eq!(progress.longest_gap(), (40, 230, 1), "the gap begins anew when the client continues");
        progress.note_delivery(240, group, true);
        progress.look(900, false);
        progress.note_sent(1000, client, &[group], false);
        progress.look(1090, true);
        progress.note_sent(1140, client, &[group], false);
        assert_eq!(progress.longest_gap(), (50, 1140, 1), "a client without room waits, too");
        progress.note_sent(1150, client, &[group], true);
        progress.note_sent(1210, client, &[group], false);
        assert_eq!(progress.longest_gap(), (50, 1140, 1));
    }

    #[test]
    fn owed_messages_depend_on_the_client_and_on_deliveries() {
        let topology = Topology::new(&[1, 2], 2).expect("a possible cluster");
        let mut progress = Progress::new(&topology);
        let id = |client, sequence| MessageId { client: ClientId(client), sequence };
        let (one, two) = (GroupId(0), GroupId(1));
        assert!(progress.is_through(&topology));
        progress.multicast(id(0, 1), &[one, two]);
        progress.multicast(id(0, 2), &[two]);
        progress.multicast(id(1, 1), &[two]);
        progress.synced(id(1, 1));
        progress.delivered(ProcessId(0), one, id(0, 1), 1);
        // Message 1 was delivered in one group, so the other group owes it. Message 2 was delivered in none. The synced
        // message is owed.
        progress.client_crashed(ClientId(0));
        progress.client_crashed(ClientId(1));
        assert_eq!(progress.owed, 2);
        progress.delivered(ProcessId(1), two, id(1, 1), 1);
        progress.delivered(ProcessId(1), two, id(0, 1), 2);
        assert_eq!(progress.missing(&topology).unwrap(), "p2 is behind its group");
        progress.member_crashed(ProcessId(2));
        assert_eq!(progress.missing(&topology).unwrap(), "p2 has no state");
        progress.restored(ProcessId(2), 2);
        assert!(progress.is_through(&topology));
        progress.delivered(ProcessId(2), two, id(0, 2), 3);
        assert!(!progress.is_through(&topology), "p1 lacks it now");
    }
}
