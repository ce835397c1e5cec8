//! State transfers of the application at a member. The protocol is described in [`transfer`](crate::node::transfer).

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use super::recover::{ENVELOPE, TRANSFER};
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::node::transfer::{
    ASIDE_AFTER, ASK_EVERY, ASK_PAUSED_EVERY, BUSY, Backlog, DONOR_PATIENCE, Entry, GivenUp, IncomingTransfer, Name,
    OutgoingTransfer, PAUSE, RECEIVER_PATIENCE, RESUME_PATIENCE, STALLED, Stage, Standing, Subject, Taken,
    TransferLetter, TransferOutcome, TransferReport, TransferRole, Want, YIELD,
};
use crate::{Incarnation, PeerMessage};

/// Maximum number of queued transfer pieces, so that other peer messages do not wait for long.
const WAITING: usize = 2;

impl<F: Fabric> Member<F> {
    /// Removes and returns the oldest report about a state transfer. Only the last few are kept.
    pub fn take_transfer_report(&mut self) -> Option<TransferReport> {
        self.transfers.take_report()
    }

    /// Returns the number of deliveries that the application has made, by itself or through another member's state. It
    /// may exceed [`Replica::delivered`](crate::Replica::delivered) during a transfer.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.outputs.applied
    }

    /// Returns the bytes of the frozen state received in the present or last incoming transfer; 0 once this member has
    /// dropped that transfer.
    #[must_use]
    pub fn transfer_received(&self) -> u64 {
        self.transfers.incoming.as_ref().map_or(0, IncomingTransfer::received)
    }

    /// Returns whether the application has been receiving its state from another member for a while.
    pub(super) fn is_receiving(&self) -> bool {
        let now = self.recovery.now;
        let receives = |incoming: &IncomingTransfer| {
            let goes_on = self.is_served_by(incoming.from);
            goes_on
                && !incoming.done
                && now - incoming.began >= ASIDE_AFTER
                && (now - incoming.heard < STALLED || incoming.is_restoring())
        };
        self.transfers.incoming.as_ref().is_some_and(receives)
    }

    /// Returns whether the application has made all deliveries that the message's state counts. Returns `true` for a
    /// message that does not come with the application's state.
    pub(super) fn meets_application(&self, letter: &PeerMessage) -> bool {
        let ahead = letter.state().is_some_and(|state| state.delivered > self.outputs.applied);
        let has_it = !ahead && !self.transfers.is_restoring();
        !letter.carries_snapshot() || has_it || mutant!(self.mutant, StateAheadOfApplication)
    }

    /// Updates the transfers after the state machine has processed a peer message.
    pub(super) fn note_transferred(&mut self, from: ProcessId, letter: &PeerMessage) {
        if letter.carries_snapshot()
            && let Some(incoming) = self.transfers.incoming.as_mut().filter(|incoming| incoming.from == from)
        {
            let news = !std::mem::replace(&mut incoming.done, true);
            let (position, bytes) = (incoming.position, incoming.received());
            if news {
                let (role, outcome) = (TransferRole::Receiver, TransferOutcome::Complete);
                self.transfers.report(TransferReport { role, peer: from, position, bytes, outcome });
            }
            self.tell_aside();
        }
        if let PeerMessage::Installed { ballot } = letter
            && *ballot == self.replica.ballot()
        {
            self.transfers.set_want(from, None);
            let outgoing = self.transfers.outgoing.as_ref().filter(|outgoing| outgoing.to == from);
            match outgoing.map(|outgoing| outgoing.stage) {
                None => {}
                Some(Stage::Final) => self.end_outgoing(TransferOutcome::Complete),
                // The receiver caught up without this transfer.
                Some(_) => self.end_outgoing(TransferOutcome::GivenUp(GivenUp::Abandoned)),
            }
        }
    }

    /// Returns whether a peer message of the state machine must be withheld, because the application's state must
    /// arrive first or is in flight. Otherwise the stream would start with that message, and flow control would wait
    /// for a member that consumes nothing.
    pub(super) fn is_held_back(&mut self, to: ProcessId, letter: &PeerMessage) -> bool {
        let backlog_is_empty = self.outputs.backlog.as_ref().is_none_or(Backlog::is_empty);
        let outgoing = self.transfers.outgoing.as_mut().filter(|outgoing| outgoing.to == to);
        match letter {
            PeerMessage::Install { snapshot: false, .. } => {
                return outgoing.is_some_and(|outgoing| outgoing.stage != Stage::Final);
            }
            PeerMessage::Install { .. } | PeerMessage::Transfer { .. }
                if !mutant!(self.mutant, StateAheadOfApplication) => {}
            _ => return false,
        }
        let delivered = letter.state().map_or(0, |state| state.delivered);
        if let Some(outgoing) = outgoing
            && !mutant!(self.mutant, FrozenAgain)
        {
            if outgoing.stage == Stage::Final && backlog_is_empty {
                return false;
            }
            outgoing.reopen();
            self.transfers.is_due = true;
            return true;
        }
        match self.transfers.standing(to) {
            Some(standing) if standing.applied >= delivered => {
                self.transfers.set_want(to, None);
                return false;
            }
            Some(_) => {}
            None => self.send_transfer_letter(to, &TransferLetter::about(Name::NONE, Subject::Query)),
        }
        self.transfers.set_want(to, Some(Want { delivered }));
        true
    }

    fn send_transfer_letter(&mut self, to: ProcessId, letter: &TransferLetter<'_>) {
        let mut words = vec![TRANSFER, 0, 0];
        debug_assert_eq!(words.len(), ENVELOPE);
        let tail = letter.encode(&mut words);
        self.send_letter(to, &words, tail);
    }

    /// Processes a transfer letter. Returns `None` if it was refused.
    pub(super) fn take_transfer_letter<A: Application>(
        &mut self,
        from: ProcessId,
        words: &[u64],
        tail: &[u8],
        app: &mut A,
    ) -> Option<()> {
        self.topology.member_bit(self.replica.group(), from)?;
        let letter = TransferLetter::decode(words, tail)?;
        self.transfers.is_due = true;
        match letter.subject {
            // This member does not answer, so the second donor does not freeze its application and asks again.
            Subject::Query if self.is_busy_with_another(from) => {}
            Subject::Query => self.say_standing(from),
            Subject::Standing(standing) => self.take_standing(from, standing),
            Subject::GivenUp(why) => self.take_given_up(from, letter.name, why),
            Subject::Snapshot(_) | Subject::End(_) | Subject::Deliveries(..) => {
                self.take_piece_from(from, &letter, app);
            }
        }
        Some(())
    }

    /// Reports the application's progress. Sends nothing while the application restores a state on another thread,
    /// because it has not made those deliveries yet.
    pub(super) fn say_standing(&mut self, to: ProcessId) {
        if self.transfers.is_restoring() {
            return;
        }
        let incoming = self.transfers.incoming.as_ref().filter(|incoming| incoming.from == to);
        let under_way = incoming.map(|incoming| (incoming.name, incoming.next()));
        let standing = Standing { applied: self.outputs.applied, under_way };
        self.send_transfer_letter(to, &TransferLetter::about(Name::NONE, Subject::Standing(standing)));
    }

    fn say_given_up(&mut self, to: ProcessId, name: Name, why: GivenUp) {
        self.send_transfer_letter(to, &TransferLetter::about(name, Subject::GivenUp(why)));
    }
}

/// The donor's side.
impl<F: Fabric> Member<F> {
    fn take_standing(&mut self, from: ProcessId, standing: Standing) {
        self.transfers.set_standing(from, Some(standing));
        let now = self.recovery.now;
        let Some(outgoing) = self.transfers.outgoing.as_mut().filter(|outgoing| outgoing.to == from) else { return };
        let (paused, position, bytes) = (outgoing.paused, outgoing.position, outgoing.read());
        if !outgoing.on_standing(standing, now) {
            self.end_outgoing(TransferOutcome::GivenUp(GivenUp::Abandoned));
        } else if paused {
            let (role, outcome) = (TransferRole::Donor, TransferOutcome::Resumed);
            self.transfers.report(TransferReport { role, peer: from, position, bytes, outcome });
        }
    }

    /// Pauses the transfer to a member whose connection broke, and forgets that member's reported progress.
    pub(super) fn interrupt_transfers(&mut self, with: ProcessId) {
        self.transfers.set_standing(with, None);
        if let Some(outgoing) = self.transfers.outgoing.as_mut().filter(|outgoing| outgoing.to == with) {
            outgoing.pause();
        }
    }

    /// Ends the transfer to another member, and reports the outcome.
    fn end_outgoing(&mut self, outcome: TransferOutcome) {
        let Some(outgoing) = self.transfers.outgoing.take() else { return };
        let (peer, position, bytes) = (outgoing.to, outgoing.position, outgoing.read());
        self.transfers.report(TransferReport { role: TransferRole::Donor, peer, position, bytes, outcome });
        self.outputs.backlog = None;
        self.transfers.throttle.end();
        // The stream was stopped, for the transfer or with a connection, and the state with which it restarts was held
        // back.
        if !self.streams.is_started(peer) {
            self.transfers.cut_off.push(peer);
            self.transfers.is_due = true;
        }
        if let TransferOutcome::GivenUp(why) = outcome {
            let pause = match why {
                GivenUp::TooLarge { .. } | GivenUp::BacklogFull { .. } | GivenUp::Unwritable => PAUSE,
                GivenUp::Abandoned | GivenUp::LeaderChanged | GivenUp::Silent => YIELD,
            };
            self.transfers.pause(peer, self.recovery.now + pause);
            self.say_given_up(peer, outgoing.name, why);
        }
        self.count_rare_bytes();
        self.gate.disturb();
    }

    /// Advances the transfers by one tick.
    pub(super) fn tick_transfers(&mut self) {
        let now = self.recovery.now;
        if let Some(incoming) = &self.transfers.incoming
            && now - incoming.heard > RECEIVER_PATIENCE
            && !incoming.is_held_back()
        {
            self.transfers.incoming = None;
            self.count_rare_bytes();
        }
        self.tell_aside();
        self.transfers.is_due |= self.transfers.outgoing.is_some() || self.transfers.next_want(now).is_some();
        let Some(outgoing) = &self.transfers.outgoing else { return };
        let (to, silence) = (outgoing.to, now - outgoing.heard);
        let every = if outgoing.paused { ASK_PAUSED_EVERY } else { ASK_EVERY };
        let asks = silence > 0 && silence.is_multiple_of(every);
        let (backlog, percent) = (self.outputs.backlog.as_ref(), self.limits.slowed_percent);
        self.transfers.tick_throttle(self.outputs.applied, backlog, percent, now);
        if asks && self.is_connected_to(to) {
            self.send_transfer_letter(to, &TransferLetter::about(Name::NONE, Subject::Query));
        }
    }

    /// Starts a transfer, sends its pieces and ends it, as far as each is due.
    pub(super) fn go_on_transferring<A: Application>(&mut self, app: &mut A) {
        if !self.transfers.is_due {
            return;
        }
        self.transfers.is_due = false;
        self.answer_pieces();
        if let Some(why) = self.reason_to_end() {
            self.end_outgoing(TransferOutcome::GivenUp(why));
        }
        if self.transfers.outgoing.is_none() || mutant!(self.mutant, FrozenAgain) {
            self.begin_transfer(app);
        }
        if let Err(why) = self.send_transfer_pieces() {
            self.end_outgoing(TransferOutcome::GivenUp(why));
        }
        self.finish_transfer(app);
        self.begin_streams_again(app);
    }

    /// Sends the state to members whose streams were not running when a transfer ended.
    fn begin_streams_again<A: Application>(&mut self, app: &mut A) {
        if self.transfers.cut_off.is_empty() {
            return;
        }
        let behind = PeerMessage::Behind { ballot: self.replica.ballot(), snapshot: false };
        for to in std::mem::take(&mut self.transfers.cut_off) {
            // The state machine refuses this if the member no longer leads. Then there is no stream to restart.
            let _ = self.with_replica(app, |replica, out| replica.on_peer_message(to, &behind, out));
        }
        self.send_outgoing();
    }

    /// Returns whether `donor` may transfer its state to `receiver`, as far as this member knows: the donor leads the
    /// promised ballot, or the receiver campaigns in it.
    fn gives(&self, donor: ProcessId, receiver: ProcessId) -> bool {
        let promised = self.replica.promised();
        promised.leader() == donor || promised.leader() == receiver && promised != self.replica.ballot()
    }

    fn serves(&self, to: ProcessId) -> bool {
        self.gives(self.fabric.me(), to)
    }

    /// Returns whether a transfer from `donor` to this member is still valid. Once this member has promised another
    /// leader's ballot, it gets the missing state from that leader. For a member without memory, every transfer is
    /// valid.
    fn is_served_by(&self, donor: ProcessId) -> bool {
        self.gives(donor, self.fabric.me()) || self.replica.is_joining()
    }

    fn reason_to_end(&self) -> Option<GivenUp> {
        let outgoing = self.transfers.outgoing.as_ref()?;
        let silence = self.recovery.now - outgoing.heard;
        // A receiver that restores a large state is unresponsive, and may lose its connection because of that.
        let restores = outgoing.may_be_restored();
        let patience = if restores || self.is_connected_to(outgoing.to) { DONOR_PATIENCE } else { RESUME_PATIENCE };
        let others_wait = || self.transfers.next_want(self.recovery.now).is_some_and(|(to, ..)| to != outgoing.to);
        if !self.serves(outgoing.to) || outgoing.name.incarnation != self.applied_in() {
            Some(GivenUp::LeaderChanged)
        } else if self.outputs.backlog.as_ref().is_none_or(Backlog::has_overflowed) {
            Some(GivenUp::BacklogFull { limit: self.limits.backlog_bytes })
        } else if silence > patience || silence > STALLED && !restores && others_wait() {
            Some(GivenUp::Silent)
        } else {
            None
        }
    }

    /// Freezes the application and starts the transfer to the next member that needs its state.
    fn begin_transfer<A: Application>(&mut self, app: &mut A) {
        let now = self.recovery.now;
        let Some((to, want, standing)) = self.transfers.next_want(now) else { return };
        self.transfers.set_want(to, None);
        if standing.applied >= want.delivered || !self.serves(to) {
            // The receiver caught up meanwhile, or another leader serves it. If it still lacks something, it asks
            // again.
            return;
        }
        let (life, incarnation) = (self.links.life, self.applied_in());
        let name = Name { life, freeze: self.transfers.next_freeze(), incarnation };
        let position = self.outputs.applied;
        let frozen = app.freeze();
        self.outputs.backlog = Some(Backlog::new(self.limits.backlog_bytes));
        self.transfers.throttle.begin(position);
        let limit = self.limits.snapshot_bytes;
        self.transfers.outgoing = Some(OutgoingTransfer::new(to, name, (position, frozen), limit, now));
        let (role, outcome) = (TransferRole::Donor, TransferOutcome::Began);
        self.transfers.report(TransferReport { role, peer: to, position, bytes: 0, outcome });
        if self.streams.outbound.others_started(to) + 1 >= self.topology.majority(self.replica.group()) as usize {
            // A majority proceeds without the receiver, so flow control must not wait for it meanwhile.
            self.streams.stop(to);
        }
    }

    /// Queues transfer pieces, as many as the window and the queue of peer messages allow.
    pub(super) fn send_transfer_pieces(&mut self) -> Result<(), GivenUp> {
        let mut words = Vec::new();
        let mut any = false;
        while let Some(outgoing) = &mut self.transfers.outgoing {
            let to = outgoing.to;
            if !self.outputs.is_connected(to) {
                break;
            }
            let Some(backlog) = &mut self.outputs.backlog else { break };
            if self.assemblers[to.index()].waiting_with(TRANSFER) >= WAITING {
                // Retry when the queued pieces are written.
                self.transfers.is_due = true;
                break;
            }
            let Some(letter) = outgoing.next_letter(backlog)? else { break };
            words.clear();
            words.extend_from_slice(&[TRANSFER, 0, 0]);
            let tail = letter.encode(&mut words);
            if !self.assemblers[to.index()].post(&words, tail, self.letter_bytes) {
                break;
            }
            outgoing.advance();
            any = true;
        }
        if any {
            self.count_rare_bytes();
            self.gate.disturb();
        }
        Ok(())
    }

    /// Sends the state machine's state, if the receiver lacks nothing else.
    fn finish_transfer<A: Application>(&mut self, app: &mut A) {
        let (Some(outgoing), Some(backlog)) = (&mut self.transfers.outgoing, &self.outputs.backlog) else { return };
        if !outgoing.is_at_end(backlog) {
            return;
        }
        outgoing.stage = Stage::Final;
        let (to, promised) = (outgoing.to, self.replica.promised());
        let ballot = if promised.leader() == to { promised } else { self.replica.ballot() };
        let behind = PeerMessage::Behind { ballot, snapshot: true };
        // The state machine gets another `Behind` in the receiver's name, and therefore sends its current state.
        let done = self.with_replica(app, |replica, out| replica.on_peer_message(to, &behind, out));
        if done.is_err() || !self.outputs.sends_state(to) {
            // The state machine sends no state, for example because this member is itself a candidate.
            if let Some(outgoing) = &mut self.transfers.outgoing {
                outgoing.reopen();
            }
            return;
        }
        self.send_outgoing();
        if promised.leader() == to {
            // A candidate does not answer. If the connection loses the state, the candidate asks again, and needs
            // nothing else.
            self.end_outgoing(TransferOutcome::Complete);
        }
    }
}

/// The receiver's side.
impl<F: Fabric> Member<F> {
    /// Resumes deliveries when the application has room again: first those of transfer pieces, then those of the state
    /// machine. Returns whether a delivery was made, or a transfer piece waited for room.
    pub(super) fn go_on_delivering<A: Application>(&mut self, app: &mut A) -> bool {
        let before = self.outputs.applied;
        let now = self.recovery.now;
        let held_back = self.transfers.incoming.as_mut().is_some_and(|incoming| incoming.settle(now));
        self.transfers.is_due |= held_back;
        while app.has_room()
            && let Some(words) = self.transfers.incoming.as_mut().and_then(IncomingTransfer::next_held_back)
        {
            if self.apply_deliveries(&words, app).is_none() {
                self.refuse_incoming(GivenUp::Abandoned);
            }
        }
        if self.replica.is_held_back() {
            self.with_replica(app, |replica, out| replica.go_on_delivering(out));
        }
        self.outputs.applied != before || held_back
    }

    /// Handles the peer's message that it gave up a transfer.
    fn take_given_up(&mut self, from: ProcessId, name: Name, why: GivenUp) {
        if self.transfers.outgoing.as_ref().is_some_and(|outgoing| outgoing.to == from && outgoing.name == name) {
            self.end_outgoing(TransferOutcome::GivenUp(why));
        } else if let Some(incoming) = self.transfers.incoming.take_if(|incoming| incoming.is_named(from, name)) {
            self.report_incoming(&incoming, TransferOutcome::GivenUp(why));
        } else if let GivenUp::TooLarge { .. } | GivenUp::Unwritable = why {
            // The donor refused before the first piece.
            let (role, outcome) = (TransferRole::Receiver, TransferOutcome::GivenUp(why));
            self.transfers.report(TransferReport { role, peer: from, position: 0, bytes: 0, outcome });
        }
        self.tell_aside();
        self.count_rare_bytes();
    }

    fn report_incoming(&mut self, incoming: &IncomingTransfer, outcome: TransferOutcome) {
        let (peer, position, bytes) = (incoming.from, incoming.position, incoming.received());
        if !incoming.done {
            self.transfers.report(TransferReport { role: TransferRole::Receiver, peer, position, bytes, outcome });
        }
    }

    fn take_piece_from<A: Application>(&mut self, from: ProcessId, letter: &TransferLetter<'_>, app: &mut A) {
        if !self.takes_part_in(letter.name.incarnation) {
            self.transfers.incoming.take_if(|incoming| incoming.is_named(from, letter.name));
            self.say_given_up(from, letter.name, GivenUp::Abandoned);
            return;
        }
        let now = self.recovery.now;
        let mixed = mutant!(self.mutant, PiecesMixed);
        let known = self.transfers.incoming.as_ref().is_some_and(|known| known.is_named(from, letter.name) || mixed);
        if !known && !self.begin_incoming(from, letter, app) {
            self.say_given_up(from, letter.name, GivenUp::Abandoned);
            return;
        }
        let Some(incoming) = &mut self.transfers.incoming else { return };
        let taken = if mixed { incoming.take_any(from, letter, now) } else { incoming.take(letter, now) };
        match taken {
            Taken::Ignored => {}
            Taken::Kept => self.count_rare_bytes(),
            Taken::Whole => self.restore_snapshot(app),
            Taken::Deliveries(words) if incoming.is_held_back() || !app.has_room() => {
                incoming.hold_back(words.to_vec());
                self.count_rare_bytes();
            }
            Taken::Deliveries(words) => {
                if self.apply_deliveries(words, app).is_none() {
                    self.refuse_incoming(GivenUp::Abandoned);
                }
            }
            Taken::Refused(why) => self.refuse_incoming(why),
        }
    }

    /// Returns whether a transfer from another donor makes progress.
    fn is_busy_with_another(&self, donor: ProcessId) -> bool {
        let now = self.recovery.now;
        let is_busy = |known: &IncomingTransfer| known.from != donor && !known.done && now - known.heard < BUSY;
        self.transfers.incoming.as_ref().is_some_and(is_busy)
    }

    /// Joins a transfer whose first piece arrived, unless a transfer from another donor makes progress, the application
    /// is already ahead of the transferred state, or it cannot take a state of that history. Returns whether this
    /// member has joined.
    fn begin_incoming<A: Application>(&mut self, from: ProcessId, first: &TransferLetter<'_>, app: &mut A) -> bool {
        if first.number != 1 {
            return false;
        }
        if self.is_busy_with_another(from) || !self.may_take_of(first.name.incarnation, app) {
            self.say_standing(from);
            return false;
        }
        let (now, applied) = (self.recovery.now, self.outputs.applied);
        if first.position < applied {
            self.say_standing(from);
            return false;
        }
        if let Some(before) = self.transfers.incoming.take() {
            self.report_incoming(&before, TransferOutcome::GivenUp(GivenUp::Abandoned));
        }
        let incoming = IncomingTransfer::new(from, first, self.limits.snapshot_bytes, now);
        self.report_incoming(&incoming, TransferOutcome::Began);
        self.transfers.incoming = Some(incoming);
        self.tell_aside();
        true
    }

    /// Makes the application restore the state that was received.
    fn restore_snapshot<A: Application>(&mut self, app: &mut A) {
        // This member's own outgoing transfer must end: the restore leaves a gap in the backlog, which the receiver
        // would inherit.
        self.end_outgoing(TransferOutcome::GivenUp(GivenUp::LeaderChanged));
        let Some(incoming) = &mut self.transfers.incoming else { return };
        if incoming.position > self.outputs.applied {
            self.outputs.restore(incoming.position, incoming.snapshot(), app);
            self.transfers.applied_in = incoming.name.incarnation;
        }
        if !app.has_room() {
            incoming.restores();
        }
        incoming.forget_snapshot();
        self.count_rare_bytes();
    }

    /// Applies the deliveries of a piece. Returns `None` if the words are malformed or deliveries before them are
    /// missing.
    fn apply_deliveries<A: Application>(&mut self, mut words: &[u64], app: &mut A) -> Option<()> {
        let mut origin = Incarnation::NONE;
        if let Some(incoming) = &self.transfers.incoming {
            (self.transfers.applied_in, origin) = (incoming.name.incarnation, incoming.origin);
        }
        while !words.is_empty() {
            let (entry, rest) = Entry::read(words, origin)?;
            let delivered = entry.delivered();
            if delivered.number > self.outputs.applied + 1 {
                return None;
            }
            self.outputs.apply(delivered, app);
            words = rest;
        }
        Some(())
    }

    fn refuse_incoming(&mut self, why: GivenUp) {
        let Some(incoming) = self.transfers.incoming.take() else { return };
        self.say_given_up(incoming.from, incoming.name, why);
        self.report_incoming(&incoming, TransferOutcome::GivenUp(why));
        self.tell_aside();
        self.count_rare_bytes();
    }

    /// Acknowledges the pieces that the application has consumed.
    fn answer_pieces(&mut self) {
        if let Some(incoming) = self.transfers.incoming.as_mut().filter(|incoming| !incoming.is_restoring())
            && std::mem::take(&mut incoming.answers)
        {
            let to = incoming.from;
            self.say_standing(to);
        }
    }
}
