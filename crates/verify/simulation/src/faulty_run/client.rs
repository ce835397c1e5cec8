//! A client that may crash at any of its writes. The next client of the same id continues with the remaining messages.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimFabric;
use stentor_multicast::{Client, ClientId, MessageId, NodeError, SubmitError};

use super::Shared;
use crate::actor::Message;
use crate::histories::Histories;

/// Time between a client's checks of its connections, in nanoseconds.
const TICK_NS: u64 = 20_000;

pub(super) struct ClientActor {
    pub(super) client: Client<SimFabric>,
    id: ClientId,
    me: ProcessId,
    /// Messages whose synced multicast has not returned yet, with their contents.
    unsynced: VecDeque<(MessageId, Message)>,
    /// `true` if this client ends, because its id was taken over or a group was reset.
    superseded: bool,
    /// The reason why the last attempt to multicast the next message failed.
    pub(super) refused: Option<SubmitError>,
    shared: Rc<Shared>,
}

impl ClientActor {
    pub(super) fn new(shared: &Rc<Shared>, id: ClientId, incarnation: u64) -> Result<Self, NodeError> {
        let me = shared.topology.client_process(id);
        let (fabric, topology, limits) = (shared.world.fabric(me), shared.topology.clone(), shared.scenario.limits);
        let mut client = Client::with_mutant(fabric, topology, id, limits, (shared.salt, incarnation), shared.mutant)?;
        client.set_expel_after(shared.scenario.expel_ns.map_or(Duration::MAX, Duration::from_nanos));
        client.record_operations();
        let shared = Rc::clone(shared);
        Ok(ClientActor { client, id, me, unsynced: VecDeque::new(), superseded: false, refused: None, shared })
    }

    pub(super) fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        self.client.tick(Duration::from_nanos(now_ns));
        while self.submit(now_ns) {
            worked = true;
        }
        self.note_synced(now_ns);
        if self.client.is_superseded() && !std::mem::replace(&mut self.superseded, true) {
            self.shared.nemesis.borrow_mut().superseded(now_ns, self.me);
            // If a group has begun a new history, other processes rightly end a client whose message was lost with the
            // old history.
            let history = self.shared.history.borrow();
            let excused = history.histories.as_ref().is_some_and(Histories::began_anew);
            self.superseded_for_nothing(!excused);
        }
        let operations = self.client.take_operations();
        self.shared.history.borrow_mut().operations(now_ns, self.me, &operations);
        self.shared.world.wake_at(self.me, now_ns + TICK_NS);
        worked
    }

    fn superseded_for_nothing(&self, is: bool) {
        let nothing = &self.shared.superseded_for_nothing;
        nothing.set(nothing.get() || is && self.shared.scenario.client_timeout_ns.is_none());
    }

    /// Sends the next message if it is due and there is room.
    fn submit(&mut self, now_ns: u64) -> bool {
        let mut load = self.shared.loads[usize::from(self.id.0)].borrow_mut();
        // The process may have crashed at a post of this step.
        if !self.shared.world.is_up(self.me) {
            return false;
        }
        let Some(message) = load.take(&self.shared.world, self.me, now_ns) else { return false };
        let synced = load.left.is_multiple_of(4);
        let submitted = if synced {
            self.client.submit_synced(&message.to, &message.payload, message.notify)
        } else {
            self.client.submit(&message.to, &message.payload, message.notify)
        };
        if !self.shared.nemesis.borrow().has_stopped() {
            self.shared.progress.borrow_mut().note_sent(now_ns, self.id, &message.to, submitted.is_ok());
        }
        if matches!(submitted, Err(SubmitError::GroupReset { .. })) && !std::mem::replace(&mut self.superseded, true) {
            self.shared.nemesis.borrow_mut().lose(now_ns, self.me);
        }
        let Ok(submitted) = submitted else {
            load.next = Some(message);
            self.refused = submitted.err();
            return false;
        };
        self.refused = None;
        let id = submitted.id;
        let known = message.to.iter().map(|group| (usize::from(group.0), self.client.incarnation(*group)));
        self.shared.history.borrow_mut().multicast_to(self.me, id, known.collect());
        if self.client.submitted() == 1 {
            self.shared.nemesis.borrow_mut().begun(now_ns);
        }
        self.shared.history.borrow_mut().multicast(now_ns, self.me, id, &message.to, &message.payload);
        let mut progress = self.shared.progress.borrow_mut();
        progress.multicast(id, &message.to);
        progress.note_owed(now_ns, &message.to);
        drop(progress);
        if let Some(clocks) = &self.shared.clocks {
            clocks.borrow_mut().multicast(id, now_ns);
        }
        self.shared.world.mark(self.me, format_args!("multicast {id}"));
        load.left -= 1;
        load.not_before_ns = now_ns + load.between_messages();
        if synced {
            self.unsynced.push_back((id, message));
        }
        true
    }

    /// Records the messages that a majority of each destination group holds by now.
    fn note_synced(&mut self, now_ns: u64) {
        if !self.shared.world.is_up(self.me) {
            return;
        }
        while let Some((id, message)) = self.unsynced.front()
            && id.sequence <= self.client.synced_up_to()
        {
            self.shared.history.borrow_mut().synced(now_ns, self.me, *id, &message.to, &message.payload);
            self.shared.progress.borrow_mut().synced(*id);
            self.unsynced.pop_front();
        }
    }
}
