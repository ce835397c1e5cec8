//! What is kept of a history: messages and deliveries, in tables with small indices.

use std::collections::HashMap;

use crate::event::{Deliver, Event, EventKind, Multicast};
use crate::ids::{MessageId, Process};

/// Where an event was recorded: the input (high 16 bits) and the line there.
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

/// An event that is kept whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) event: Event,
    pub(crate) origin: Origin,
}

/// A message, by its index in [`Log::messages`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) id: MessageId,
    /// `None` while somebody spoke of it and nobody multicast it.
    pub(crate) sent: Option<Sent>,
    /// A synced multicast of it returned.
    pub(crate) synced: bool,
}

/// How a message was multicast first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) process: Process,
    pub(crate) incarnation: u32,
    pub(crate) t: u64,
    pub(crate) origin: Origin,
    pub(crate) multicast: Multicast,
}

/// A delivery, by its index in [`Log::deliveries`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) message: u32,
    pub(crate) process: Process,
    pub(crate) incarnation: u32,
    pub(crate) t: u64,
    pub(crate) origin: Origin,
    pub(crate) deliver: Deliver,
}

/// One incarnation of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    pub(crate) number: u32,
    pub(crate) recovered_from: Option<u64>,
    pub(crate) crashed: bool,
    pub(crate) deliveries: Vec<u32>,
}

/// Everything that the properties look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) messages: Vec<Message>,
    pub(crate) deliveries: Vec<Delivery>,
    /// Incarnations by process, rising.
    pub(crate) lives: Vec<Vec<Life>>,
    /// Multicasts of a message that was multicast otherwise before.
    pub(crate) conflicts: Vec<Kept>,
    pub(crate) crashes: u64,
    by_id: HashMap<MessageId, u32>,
    /// Messages in the order in which they were multicast, as far as the inputs tell.
    pub(crate) sent_order: Vec<u32>,
}

impl Log {
    /// The index of a message.
    pub(crate) fn message(&mut self, id: MessageId) -> u32 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.messages.push(Message { id, sent: None, synced: false });
            u32::try_from(self.messages.len() - 1).expect("fewer than 2^32 messages")
        })
    }

    /// Takes in an event.
    pub(crate) fn record(&mut self, event: &Event, origin: Origin) {
        match event.kind {
            EventKind::Multicast(multicast) => self.multicast(event, origin, multicast, false),
            EventKind::Synced(multicast) => self.multicast(event, origin, multicast, true),
            EventKind::Deliver(deliver) => self.deliver(event, origin, deliver),
            EventKind::Crash => {
                self.life(event).crashed = true;
                self.crashes += 1;
            }
            EventKind::Recover { from } => self.recover(event, from),
            EventKind::Epoch { .. } => {
                self.life(event);
            }
            EventKind::RemoteOp { .. } | EventKind::Memory { .. } => {}
        }
    }

    fn multicast(&mut self, event: &Event, origin: Origin, multicast: Multicast, synced: bool) {
        self.life(event);
        let index = self.message(multicast.m);
        let message = &mut self.messages[index as usize];
        message.synced |= synced;
        match &message.sent {
            None => {
                let Event { t, process, incarnation, .. } = *event;
                message.sent = Some(Sent { process, incarnation, t, origin, multicast });
                self.sent_order.push(index);
            }
            // The return of a synced multicast, or the same again: a message is told by its client and number.
            Some(sent) if sent.multicast == multicast => {}
            Some(_) => self.conflicts.push(Kept { event: *event, origin }),
        }
    }

    fn deliver(&mut self, event: &Event, origin: Origin, deliver: Deliver) {
        let message = self.message(deliver.m);
        let index = u32::try_from(self.deliveries.len()).expect("fewer than 2^32 deliveries");
        let Event { t, process, incarnation, .. } = *event;
        self.deliveries.push(Delivery { message, process, incarnation, t, origin, deliver });
        self.life(event).deliveries.push(index);
    }

    fn recover(&mut self, event: &Event, from: u64) {
        let life = self.life(event);
        if !life.deliveries.is_empty() || life.crashed {
            // Came back under its old number: taken as a new incarnation.
            let lives = &mut self.lives[event.process.index()];
            let at = lives.partition_point(|life| life.number <= event.incarnation);
            lives.insert(at, Life { number: event.incarnation, ..Life::default() });
        }
        self.life(event).recovered_from = Some(from);
    }

    /// The latest life of the event's incarnation.
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

    /// Whether the process was up when the history ended.
    pub(crate) fn is_up(&self, process: Process) -> bool {
        let last = self.lives.get(process.index()).and_then(|lives| lives.last());
        last.is_none_or(|life| !life.crashed)
    }

    /// Whether the client of this message lived on, in the same incarnation, to the end of the history.
    pub(crate) fn client_is_correct(&self, sent: &Sent) -> bool {
        let last = self.lives[sent.process.index()].last();
        last.is_some_and(|life| !life.crashed && life.number == sent.incarnation)
    }
}
