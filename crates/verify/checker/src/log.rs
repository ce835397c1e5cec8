//! The log of a history: messages, deliveries and lives, in tables with small indices. The properties read it.

use std::collections::HashMap;

use crate::cluster::Cluster;
use crate::event::{Begun, Deliver, Event, EventKind, Multicast};
use crate::ids::{Ballot, Group, MessageId, Process};

/// xxh3-64 of the empty payload.
const EMPTY_HASH: u64 = 0x2d06_8005_38d3_94c2;

/// The location of an event's record: the index of the input (high 16 bits) and the line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Origin(u64);

impl Origin {
    pub(crate) fn new(source: usize, line: u64) -> Self {
        Origin((source.min(0xffff) as u64) << 48 | line & ((1 << 48) - 1))
    }

    pub(crate) fn source(self) -> usize {
        (self.0 >> 48) as usize
    }

    pub(crate) fn line(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}

/// An event that is stored in full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) event: Event,
    pub(crate) origin: Origin,
}

/// A message, by its index in [`Log::messages`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    /// The multicast, or `None` if the message was mentioned by other events only.
    pub(crate) sent: Option<Sent>,
    /// `true` if a synced multicast of the message returned.
    pub(crate) synced: bool,
}

/// The multicast of a message, by the first life that multicast it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) process: Process,
    pub(crate) incarnation: u64,
    /// The last life that multicast the message. A client that recovers may finish a multicast of its previous life.
    pub(crate) last_incarnation: u64,
    pub(crate) t: u64,
    /// `true` if only the return of a synced multicast was recorded. The multicast began some time before `t`.
    pub(crate) only_returned: bool,
    pub(crate) origin: Origin,
    pub(crate) multicast: Multicast,
    /// The `heard` event with the largest time that the client's life recorded before the multicast, if there is one.
    pub(crate) heard: Option<Heard>,
}

/// The position of the order that a client had observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) time: u64,
    /// Time of the `heard` event, in nanoseconds.
    pub(crate) t: u64,
    pub(crate) origin: Origin,
}

impl Sent {
    fn new(event: &Event, origin: Origin, multicast: Multicast, only_returned: bool) -> Self {
        let Event { t, process, incarnation, .. } = *event;
        let last_incarnation = incarnation;
        Sent { process, incarnation, last_incarnation, t, only_returned, origin, multicast, heard: None }
    }
}

/// A delivery, by its index in [`Log::deliveries`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: u32,
    pub(crate) process: Process,
    pub(crate) incarnation: u64,
    pub(crate) t: u64,
    pub(crate) origin: Origin,
    pub(crate) deliver: Deliver,
}

/// One life of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    pub(crate) number: u64,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) crashed: bool,
    pub(crate) deliveries: Vec<u32>,
    /// The histories of its group whose state the life held, in sequence, each with the time of the record.
    pub(crate) begun: Vec<(Begun, u64)>,
    /// The ballots in which the process became ready to lead.
    pub(crate) ready: Vec<Ready>,
    /// Messages that the process carried into ballots in which it is not ready yet.
    carried: Vec<(Group, Ballot, u32)>,
}

/// The recovery of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovered {
    /// The number of the delivery after which the process resumes.
    pub(crate) from: u64,
    pub(crate) t: u64,
    pub(crate) origin: Origin,
}

/// A leader that became ready.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    pub(crate) kept: Kept,
    pub(crate) group: Group,
    pub(crate) ballot: Ballot,
    /// Number of deliveries of this life before the leader was ready.
    pub(crate) place: usize,
    /// Messages that the leader's state contained and that it had not delivered, in ascending order. `None` if the
    /// leader does not record them.
    pub(crate) carried: Option<Vec<u32>>,
    /// Number of carried messages that the leader counted beyond those that it named.
    pub(crate) not_named: i64,
}

/// A multicast of a message that another life of its client recorded as well.
#[derive(Clone, Copy, Debug)]
struct Again {
    message: u32,
    sent: Sent,
}

/// The data that the properties read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) messages: Vec<Message>,
    pub(crate) deliveries: Vec<Delivery>,
    /// The lives of each process, by ascending number. After [`settle`](Log::settle) they are in their true order.
    pub(crate) lives: Vec<Vec<Life>>,
    /// Multicasts of a message that was already multicast with another content, or by the same life.
    pub(crate) conflicts: Vec<Kept>,
    pub(crate) crashes: u64,
    by_id: HashMap<MessageId, u32>,
    /// Further multicasts of a message by other lives. `settle` determines which was first.
    again: Vec<Again>,
    /// The position of each life, by process and number, for processes whose lives are not ordered by their numbers.
    ranks: HashMap<Process, HashMap<u64, u64>>,
    /// Messages in the order of their multicasts, as far as the inputs determine it.
    pub(crate) sent_order: Vec<u32>,
    /// The largest time that each client had observed so far, by client and life.
    heard: HashMap<(Process, u64), Heard>,
}

impl Log {
    /// Returns the index of a message.
    pub(crate) fn message(&mut self, id: MessageId) -> u32 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.messages.push(Message { id, sent: None, synced: false });
            u32::try_from(self.messages.len() - 1).expect("fewer than 2^32 messages")
        })
    }

    /// Records an event.
    pub(crate) fn record(&mut self, event: &Event, origin: Origin) {
        match event.kind {
            EventKind::Multicast(multicast) => self.multicast(event, origin, multicast, false),
            EventKind::Synced(multicast) => self.multicast(event, origin, multicast, true),
            EventKind::Heard { time } => self.heard(event, origin, time),
            EventKind::Deliver(deliver) => self.deliver(event, origin, deliver),
            EventKind::Crash => {
                self.life(event).crashed = true;
                self.crashes += 1;
            }
            EventKind::Recover { from } => self.recover(event, origin, from),
            EventKind::Begun(begun) => {
                let t = event.t;
                self.life(event).begun.push((begun, t));
            }
            EventKind::Epoch { group, ballot, by, leader, carried } if leader == event.process => {
                self.ready(event, origin, group, Ballot { number: ballot, by }, carried);
            }
            EventKind::Carry { m, group, ballot } => {
                let message = self.message(m);
                self.life(event).carried.push((group, ballot, message));
            }
            EventKind::RemoteOp { .. } | EventKind::Memory { .. } => {}
            _ => {
                self.life(event);
            }
        }
    }

    fn heard(&mut self, event: &Event, origin: Origin, time: u64) {
        self.life(event);
        let heard = Heard { time, t: event.t, origin };
        let known = self.heard.entry((event.process, event.incarnation)).or_insert(heard);
        if time > known.time {
            *known = heard;
        }
    }

    fn multicast(&mut self, event: &Event, origin: Origin, multicast: Multicast, synced: bool) {
        self.life(event);
        let heard = self.heard.get(&(event.process, event.incarnation)).copied().filter(|_| !synced);
        let index = self.message(multicast.m);
        let message = &mut self.messages[index as usize];
        message.synced |= synced;
        match &message.sent {
            None => {
                message.sent = Some(Sent { heard, ..Sent::new(event, origin, multicast, synced) });
                self.sent_order.push(index);
            }
            // The event is the return of a synced multicast, or repeats the multicast. Client and number identify the
            // message.
            Some(sent) if sent.multicast == multicast => {
                let again = Sent { heard, ..Sent::new(event, origin, multicast, synced) };
                if event.incarnation != sent.incarnation {
                    self.again.push(Again { message: index, sent: again });
                } else if sent.only_returned && !synced {
                    message.sent = Some(again);
                } else if !synced {
                    self.conflicts.push(Kept { event: *event, origin });
                }
            }
            Some(_) => self.conflicts.push(Kept { event: *event, origin }),
        }
    }

    fn ready(&mut self, event: &Event, origin: Origin, group: Group, ballot: Ballot, carried: Option<u32>) {
        let life = self.life(event);
        let mut named = Vec::new();
        life.carried.retain(|(of_group, of_ballot, message)| {
            let mine = (*of_group, *of_ballot) == (group, ballot);
            if mine {
                named.push(*message);
            }
            !mine
        });
        named.sort_unstable();
        let not_named = carried.map_or(0, |carried| i64::from(carried) - named.len() as i64);
        let (kept, place) = (Kept { event: *event, origin }, life.deliveries.len());
        life.ready.push(Ready { kept, group, ballot, place, carried: carried.map(|_| named), not_named });
    }

    fn deliver(&mut self, event: &Event, origin: Origin, deliver: Deliver) {
        let message = self.message(deliver.m);
        let index = u32::try_from(self.deliveries.len()).expect("fewer than 2^32 deliveries");
        let Event { t, process, incarnation, .. } = *event;
        self.deliveries.push(Delivery { message, process, incarnation, t, origin, deliver });
        self.life(event).deliveries.push(index);
    }

    fn recover(&mut self, event: &Event, origin: Origin, from: u64) {
        let life = self.life(event);
        if !life.deliveries.is_empty() || life.crashed {
            // A recovery under the old number is treated as a new life.
            let lives = &mut self.lives[event.process.index()];
            let at = lives.partition_point(|life| life.number <= event.incarnation);
            lives.insert(at, Life { number: event.incarnation, ..Life::default() });
        }
        self.life(event).recovered = Some(Recovered { from, t: event.t, origin });
    }

    /// Sorts the lives of processes in their true order. `orders` contains the numbers of a process's lives, first life
    /// first. The lives of other processes are in the order of their numbers. Must be called once, after all events are
    /// recorded.
    pub(crate) fn settle(&mut self, orders: &HashMap<Process, Vec<u64>>) {
        for (process, order) in orders {
            let ranks: HashMap<u64, u64> = (0..).zip(order).map(|(rank, number)| (*number, rank)).collect();
            if let Some(lives) = self.lives.get_mut(process.index()) {
                // The sort is stable, so lives with the same number keep their order.
                lives.sort_by_key(|life| ranks.get(&life.number).copied().unwrap_or(u64::MAX));
            }
            self.ranks.insert(*process, ranks);
        }
        for Again { message, sent: again } in std::mem::take(&mut self.again) {
            let Some(sent) = self.messages[message as usize].sent else { continue };
            let rank = |incarnation| self.rank(again.process, incarnation);
            let later = rank(again.incarnation) > rank(sent.last_incarnation);
            let last_incarnation = if later { again.incarnation } else { sent.last_incarnation };
            let earlier =
                rank(again.incarnation) < rank(sent.incarnation) || (sent.only_returned && !again.only_returned);
            let sent = if earlier { again } else { sent };
            self.messages[message as usize].sent = Some(Sent { last_incarnation, ..sent });
        }
    }

    /// Treats delivered entries of a group as multicast by the client of the group's entries, which has no record.
    /// Entries that no process delivered need not be delivered, because a leader may propose an entry that is never
    /// decided.
    pub(crate) fn send_times(&mut self, cluster: &Cluster) {
        for delivery in &self.deliveries {
            let message = &mut self.messages[delivery.message as usize];
            if message.sent.is_some() {
                continue;
            }
            let (client, m) = (message.id.client, message.id);
            let Some(group) = cluster.entry_group(client) else { continue };
            let to = [group].into_iter().collect();
            let multicast = Multicast { m, to, len: 0, hash: EMPTY_HASH };
            let event = Event { t: delivery.t, process: client, incarnation: 1, kind: EventKind::Multicast(multicast) };
            message.sent = Some(Sent::new(&event, delivery.origin, multicast, true));
        }
    }

    /// Returns whether exactly one life of the client multicast this message, and no other life multicast any message
    /// with its id.
    pub(crate) fn was_multicast_by_one_life(&self, message: u32) -> bool {
        let message = &self.messages[message as usize];
        let named = |kept: &Kept| match kept.event.kind {
            EventKind::Multicast(multicast) | EventKind::Synced(multicast) => multicast.m == message.id,
            _ => false,
        };
        message.sent.is_some_and(|sent| sent.incarnation == sent.last_incarnation) && !self.conflicts.iter().any(named)
    }

    /// Returns the position of a life among those of its process.
    pub(crate) fn rank(&self, process: Process, incarnation: u64) -> u64 {
        let known = self.ranks.get(&process);
        known.map_or(incarnation, |ranks| ranks.get(&incarnation).copied().unwrap_or(u64::MAX))
    }

    /// Returns a copy without lives and deliveries.
    pub(crate) fn without_lives(&self) -> Self {
        let (deliveries, lives) = (Vec::new(), vec![Vec::new(); self.lives.len()]);
        Log { deliveries, lives, ..self.clone() }
    }

    /// Assigns the order of the lives of `process` to `double`, which represents it in an ended history.
    pub(crate) fn stand_for(&mut self, double: Process, process: Process) {
        if let Some(ranks) = self.ranks.get(&process).cloned() {
            self.ranks.insert(double, ranks);
        }
    }

    /// Returns the latest life with the event's number, which is added if there is none.
    fn life(&mut self, event: &Event) -> &mut Life {
        let index = event.process.index();
        if self.lives.len() <= index {
            self.lives.resize_with(index + 1, Vec::new);
        }
        let lives = &mut self.lives[index];
        let after = lives.partition_point(|life| life.number <= event.incarnation);
        if after > 0 && lives[after - 1].number == event.incarnation {
            return &mut lives[after - 1];
        }
        lives.insert(after, Life { number: event.incarnation, ..Life::default() });
        &mut lives[after]
    }

    /// Returns the number of the delivery after which this life resumed: the recorded number, or that of the last
    /// delivery before.
    pub(crate) fn resumed_after(&self, process: Process, life: usize) -> u64 {
        let lives = &self.lives[process.index()];
        match (&lives[life].recovered, life) {
            (Some(recovered), _) => recovered.from,
            (None, 0) => 0,
            (None, _) => self.last_number(process, life - 1, lives[life - 1].deliveries.len()),
        }
    }

    /// Returns the number of the process's last delivery at the time when it had made `place` deliveries in this life.
    pub(crate) fn last_number(&self, process: Process, life: usize, place: usize) -> u64 {
        match place.checked_sub(1) {
            Some(last) => {
                let delivery = self.lives[process.index()][life].deliveries[last];
                self.deliveries[delivery as usize].deliver.number
            }
            None => self.resumed_after(process, life),
        }
    }

    /// Returns whether the process was up when the history ended.
    pub(crate) fn is_up(&self, process: Process) -> bool {
        let last = self.lives.get(process.index()).and_then(|lives| lives.last());
        last.is_none_or(|life| !life.crashed)
    }

    /// Returns whether the client of this message stayed up, in the same life, to the end of the history.
    pub(crate) fn has_correct_client(&self, message: &Message) -> bool {
        message.sent.as_ref().is_some_and(|sent| {
            let last = self.lives.get(sent.process.index()).and_then(|lives| lives.last());
            last.is_some_and(|life| !life.crashed && life.number == sent.last_incarnation)
        })
    }
}
