//! Members and channels, each stored once and identified by a number, as in `crate::store`.

use super::channels::Parcel;
use super::member::{Context, Event, Member};
use super::reduce::is_over;
use crate::store::{EMPTY, Map, Table};

/// The result of one step of a member.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) next: u32,
    /// Channels and parcels.
    pub(crate) sends: Vec<(usize, u32)>,
    pub(crate) judge: bool,
}

/// The cause of a step: a parcel that is taken from a channel, or another event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Cause {
    Take(u16, u32),
    Campaign,
    Stalled(u16, u32),
    Tick,
    Connected(u16),
}

/// All values seen so far.
#[derive(Debug)]
pub(crate) struct Store {
    members: Table<Member>,
    parcels: Table<Parcel>,
    queues: Table<Vec<u32>>,
    pushed: Map<(u32, u32), u32>,
    /// Head and rest of each queue, indexed by queue.
    popped: Vec<(u32, u32)>,
    outcomes: Map<(u32, Cause), Option<Outcome>>,
    /// By member, channel and queue: the queue without parcels that have no effect.
    effective: Map<(u32, u16, u32), u32>,
}

impl Store {
    pub(crate) fn new() -> Self {
        let mut queues = Table::new();
        assert_eq!(queues.number(Vec::new()), EMPTY);
        Store {
            members: Table::new(),
            parcels: Table::new(),
            queues,
            pushed: Map::default(),
            popped: vec![(0, EMPTY)],
            outcomes: Map::default(),
            effective: Map::default(),
        }
    }

    pub(crate) fn member(&self, number: u32) -> &Member {
        self.members.get(number)
    }

    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn parcel(&self, number: u32) -> &Parcel {
        self.parcels.get(number)
    }

    pub(crate) fn add_member(&mut self, member: Member) -> u32 {
        self.members.number(member)
    }

    pub(crate) fn add_parcel(&mut self, parcel: Parcel) -> u32 {
        self.parcels.number(parcel)
    }

    /// Returns the contents of a channel, head first.
    pub(crate) fn queue(&self, queue: u32) -> &[u32] {
        self.queues.get(queue)
    }

    /// Returns the head of a channel that is not empty, and the rest.
    pub(crate) fn pop(&self, queue: u32) -> (u32, u32) {
        self.popped[queue as usize]
    }

    pub(crate) fn push(&mut self, queue: u32, parcel: u32) -> u32 {
        if let Some(known) = self.pushed.get(&(queue, parcel)) {
            return *known;
        }
        let mut parcels = self.queue(queue).to_vec();
        parcels.push(parcel);
        let number = self.queue_number(parcels);
        self.pushed.insert((queue, parcel), number);
        number
    }

    fn queue_number(&mut self, parcels: Vec<u32>) -> u32 {
        let Some(head) = parcels.first().copied() else { return EMPTY };
        let rest = self.queue_number(parcels[1..].to_vec());
        let number = self.queues.number(parcels);
        if number as usize == self.popped.len() {
            self.popped.push((head, rest));
        }
        number
    }

    /// Runs the real state machine, once for each state and cause. Returns `None` if the cause must wait.
    pub(crate) fn outcome(&mut self, context: &Context, member: u32, cause: Cause) -> Option<&Outcome> {
        if !self.outcomes.contains_key(&(member, cause)) {
            self.compute(context, member, cause);
        }
        self.outcomes[&(member, cause)].as_ref()
    }

    fn compute(&mut self, context: &Context, member: u32, cause: Cause) {
        let mut next = self.member(member).clone();
        let event = match cause {
            Cause::Take(wire, parcel) => {
                Event::Take(context.channels.wires[usize::from(wire)], self.parcels.get(parcel))
            }
            Cause::Campaign => Event::Campaign,
            Cause::Stalled(from, parcel) => Event::Stalled(from, self.parcels.get(parcel)),
            Cause::Tick => Event::Tick,
            Cause::Connected(peer) => Event::Connected(peer),
        };
        let outcome = next.step(context, event).map(|step| {
            let sends = step.sends.into_iter().map(|(wire, parcel)| (wire, self.parcels.number(parcel))).collect();
            Outcome { next: self.members.number(next), sends, judge: step.judge }
        });
        self.outcomes.insert((member, cause), outcome);
    }

    /// Returns a channel without the parcels that can have no effect at its receiver any more.
    pub(crate) fn effective(&mut self, context: &Context, member: u32, wire: usize, queue: u32) -> u32 {
        if queue == EMPTY {
            return EMPTY;
        }
        if let Some(known) = self.effective.get(&(member, wire as u16, queue)) {
            return *known;
        }
        let receiver = self.members.get(member);
        let name = context.channels.wires[wire];
        let parcels = self.queues.get(queue);
        let over = |parcel: &u32| is_over(context, receiver, name, self.parcels.get(*parcel));
        // Entries after the beginning of another stream are checked when that beginning is at the head.
        let left = if matches!(name, crate::network::Wire::Stream { .. }) {
            parcels.iter().copied().skip_while(|parcel| over(parcel)).collect::<Vec<_>>()
        } else {
            parcels.iter().copied().filter(|parcel| !over(parcel)).collect()
        };
        let left = self.queue_number(left);
        self.effective.insert((member, wire as u16, queue), left);
        left
    }
}
