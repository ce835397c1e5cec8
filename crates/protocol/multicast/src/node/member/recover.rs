//! Connects the state machine's recovery to the fabric: peer messages, fences, ticks, campaigns.
//!
//! # Invariants
//! - A peer message that fences a ballot above the promised one is passed to the state machine only when no process but
//!   that ballot's leader can write a stream here. By then the records that were written before are processed, up to
//!   the first entry that must wait. All other work proceeds meanwhile, because nothing is promised yet.
//! - A state that is to be installed and the position at which the stream resumes travel in one peer message.

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::{Fabric, ProcessId};

use super::Member;
use super::absent::Absence;
use crate::mutant::mutant;
use crate::node::app::Application;
use crate::node::effects::{Out, Outgoing};
use crate::node::expelling::Expelling;
use crate::node::hello::Start;
use crate::node::message_assembler::Received;
use crate::node::streams::HeldRecord;
use crate::{Ballot, ClientId, Header, Incarnation, PeerMessage, Rejected, Replica};

/// First word of an envelope with a peer message of the state machine.
const LETTER: u64 = 1;
/// First word of an envelope with a client's message.
const BODY: u64 = 2;
/// First word of an envelope with words and bytes of the caller.
const FOREIGN: u64 = 3;
/// First word of an envelope whose arguments are the sender's wall clock and the time of the group that the sender
/// leads. Such an envelope has no content.
pub(super) const CLOCK: u64 = 4;
/// First word of an envelope with a message about a transfer of the application's state.
pub(super) const TRANSFER: u64 = 5;
/// Number of words of an envelope before its content: the kind and two arguments. The arguments are the stream's
/// position and generation, the client and 0, two clocks, or 0 and 0.
pub(super) const ENVELOPE: usize = 3;

/// Time between ticks of the state machine.
const TICK: Duration = Duration::from_millis(2);
/// Time between ticks while a member rests.
const REST_TICK: Duration = Duration::from_millis(5);

/// A member's state for failures and recovery.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The operation that waits for the fence.
    pub(super) fencing: Option<Fencing>,
    /// Members whose links came up since the last step.
    pub(super) fresh: Vec<ProcessId>,
    /// Peer messages that arrived and are not processed.
    pub(super) received: VecDeque<Received>,
    /// Messages from the callers of other members that this member's caller has not taken.
    pub(super) foreign: VecDeque<Received>,
    /// The times since which clients are disconnected or have left gaps.
    pub(super) absence: Absence,
    /// The members that this one expelled, and when it expels members.
    pub(super) expelling: Expelling,
    /// Time between ticks of the state machine.
    tick: Duration,
    /// Time between ticks while this member rests.
    rest_tick: Duration,
    rests: bool,
    /// Time of the next tick.
    due: Duration,
    /// Number of [states taken over](Replica::states) at the last check.
    states: u64,
    /// Number of ticks so far.
    pub(super) now: u64,
}

impl Default for Recovery {
    fn default() -> Self {
        Recovery {
            fencing: None,
            fresh: Vec::new(),
            received: VecDeque::new(),
            foreign: VecDeque::new(),
            absence: Absence::default(),
            expelling: Expelling::default(),
            tick: TICK,
            rest_tick: REST_TICK,
            rests: false,
            due: TICK,
            states: 0,
            now: 0,
        }
    }
}

/// An operation that waits for the fence.
#[derive(Debug)]
pub(super) enum Fencing {
    /// A peer message that fences, and the envelope in which it arrived.
    PeerMessage(Box<PeerMessage>, Received),
    /// This member's own campaign.
    Campaign,
    /// An operator's reset, which ends this incarnation of the group. If `empty`, the group restarts with the empty
    /// state.
    Reset { ends: Incarnation, empty: bool },
}

impl Recovery {
    /// Returns whether a tick is due.
    #[inline]
    pub(super) fn ticks(&self, now: Duration) -> bool {
        now >= self.due
    }

    pub(super) fn next_tick(&self) -> Duration {
        self.due
    }

    pub(super) fn set_tick(&mut self, tick: Duration) {
        self.change(|recovery| recovery.tick = tick);
    }

    pub(super) fn set_rest_tick(&mut self, tick: Duration) {
        self.change(|recovery| recovery.rest_tick = tick);
    }

    pub(super) fn rest(&mut self, rests: bool) -> Duration {
        self.change(|recovery| recovery.rests = rests);
        self.interval()
    }

    /// Returns the present time between ticks.
    fn interval(&self) -> Duration {
        if self.rests { self.tick.max(self.rest_tick) } else { self.tick }
    }

    /// Returns the number of ticks that were due between the last tick and `now` but did not run, because this member
    /// rested or was not called.
    fn ticks_left_out(&self, now: Duration) -> u16 {
        if self.now == 0 {
            return 0;
        }
        let last = self.due.saturating_sub(self.interval());
        let passed = now.saturating_sub(last).as_nanos() / self.tick.as_nanos().max(1);
        passed.saturating_sub(1).min(u128::from(u16::MAX)) as u16
    }

    /// Changes the time between ticks. The next tick is due one new interval after the last tick.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let last = self.due.saturating_sub(self.interval());
        change(self);
        self.due = last.saturating_add(self.interval());
    }
}

impl<F: Fabric> Member<F> {
    /// Makes this member campaign for the leadership of its group, in a new ballot. The member becomes leader in one of
    /// the following steps, if a majority of the group promises and installs its state. The call has no effect while
    /// another operation waits for its fence.
    ///
    /// # Errors
    /// Returns [`Rejected::Joining`] if this process has no state of its group yet, and [`Rejected::Superseded`] if
    /// another process has replaced it.
    pub fn campaign(&mut self) -> Result<(), Rejected> {
        if self.replica.is_superseded() {
            return Err(Rejected::Superseded);
        }
        if self.replica.is_joining() {
            return Err(Rejected::Joining);
        }
        self.gate.disturb();
        if self.recovery.fencing.is_none() {
            self.recovery.fencing = Some(Fencing::Campaign);
        }
        Ok(())
    }

    /// Returns whether this member is revoking access, or is about to. [`housekeep`](Member::housekeep) handles the
    /// event that the revocation has taken effect, so call it without delay.
    #[inline]
    #[must_use]
    pub fn is_fencing(&self) -> bool {
        self.recovery.fencing.is_some()
    }

    /// Starts a new incarnation of this member's group in the steps that follow, if a majority of the group promises:
    /// see [`Replica::reset`].
    ///
    /// # Errors
    /// Returns the errors of [`Replica::reset`], and [`Rejected::Ahead`] if `empty` is false and the application is
    /// ahead of the state machine, because it receives another member's state.
    pub fn reset(&mut self, ends: Incarnation, empty: bool) -> Result<(), Rejected> {
        self.replica.check_reset(ends, empty)?;
        if self.is_ahead() && !empty {
            return Err(Rejected::Ahead);
        }
        self.gate.disturb();
        self.recovery.fencing = Some(Fencing::Reset { ends, empty });
        Ok(())
    }

    /// Asks another member of the group to campaign for the leadership.
    pub fn hand_over(&mut self, to: ProcessId) {
        self.outputs.letters.push(Outgoing::PeerMessage { to, letter: Box::new(PeerMessage::Lead) });
        self.gate.disturb();
    }

    /// Processes new connections, peer messages, fences and ticks. Returns whether there was anything but ticks.
    #[inline]
    pub(super) fn recover<A: Application>(&mut self, now: Duration, app: &mut A) -> bool {
        let Recovery { fresh, received, fencing, .. } = &self.recovery;
        let nothing = fresh.is_empty() && received.is_empty() && fencing.is_none() && self.outputs.letters.is_empty();
        (!nothing || self.transfers.is_due || self.recovery.ticks(now)) && self.recover_what_is_due(now, app)
    }

    #[inline(never)]
    fn recover_what_is_due<A: Application>(&mut self, now: Duration, app: &mut A) -> bool {
        let mut worked = self.meet_peers(app);
        while let Some(received) = self.recovery.received.pop_front() {
            worked = true;
            if self.take_letter(received, app).is_none() {
                self.outputs.counts.rejected += 1;
            }
        }
        if self.recovery.fencing.is_some() {
            worked |= self.go_on_fencing(app);
        }
        if self.recovery.ticks(now) {
            self.replica.skip_ticks(self.recovery.ticks_left_out(now));
            self.recovery.due = now.saturating_add(self.recovery.interval());
            self.recovery.now += 1;
            self.heartbeats.tick(&mut self.fabric, &mut self.links);
            self.note_absent(now);
            self.ask_to_open_again(app);
            self.expel_standing(now);
            self.tick(app);
            self.tick_transfers();
        }
        self.follow_part();
        self.tell_ballot();
        self.tell_histories();
        self.send_outgoing();
        self.go_on_transferring(app);
        if worked {
            // This member may read another stream now, or more of a ring.
            self.gate.disturb();
        }
        worked
    }

    pub(super) fn with_replica<A: Application, R>(
        &mut self,
        app: &mut A,
        act: impl FnOnce(&mut Replica, &mut Out<'_, A>) -> R,
    ) -> R {
        let mut out = Out { outputs: &mut self.outputs, stores: &self.stores, app };
        let result = act(&mut self.replica, &mut out);
        self.note_states();
        result
    }

    /// Performs the follow-up actions if a state of another member was adopted since the last call. A state may wait
    /// for bodies, so the last missing body completes it, whichever way that body arrives.
    #[inline]
    pub(super) fn note_states(&mut self) {
        let states = self.replica.states();
        if std::mem::replace(&mut self.recovery.states, states) != states && !mutant!(self.mutant, StateUnnoted) {
            self.note_state();
        }
    }

    #[cold]
    fn note_state(&mut self) {
        // Slots that other members delivered or made no-ops are free here, too, and their clients wait for the credits.
        for (client, body) in (0..).map(ClientId).zip(&mut self.bodies) {
            if self.replica.first_held(client) > body.credited_slots {
                self.outputs.touch(client);
            }
        }
    }

    /// Processes a peer message. Returns `None` if it was refused.
    fn take_letter<A: Application>(&mut self, received: Received, app: &mut A) -> Option<()> {
        let [what, first, second, words @ ..] = received.words() else { return None };
        match *what {
            BODY => {
                let client = ClientId(u16::try_from(*first).ok()?);
                let words = words.to_vec();
                self.take_forwarded(client, &words, app)
            }
            LETTER => {
                let letter = PeerMessage::decode(words).ok()?;
                if letter == PeerMessage::Lead {
                    return self.campaign().ok();
                }
                if let PeerMessage::Seek(spot) = &letter
                    && spot.ballot == self.replica.ballot()
                    && spot.ballot.leader() == received.from
                {
                    self.give_up_if_absent(spot.client, spot.generation);
                }
                if letter.fences().is_some_and(|ballot| ballot > self.replica.promised()) {
                    self.fence_first(letter, received);
                    return Some(());
                }
                self.hand_letter(&letter, &received, app)
            }
            TRANSFER => self.take_transfer_letter(received.from, words, received.tail(), app),
            FOREIGN => {
                self.recovery.foreign.push_back(received);
                Some(())
            }
            CLOCK if words.is_empty() => self.time.hear(received.from, *first, *second).ok(),
            _ => None,
        }
    }

    /// Queues a message to another member that consists of the caller's words and bytes. Returns false, and drops the
    /// message, if too many messages are queued, the message is too long, or the member is not connected. A queued
    /// message is lost if the connection breaks.
    #[doc(hidden)]
    pub fn send_foreign(&mut self, to: ProcessId, words: &[u64], tail: &[u8]) -> bool {
        let enveloped = [&[FOREIGN, 0, 0], words].concat();
        self.send_letter(to, &enveloped, tail)
    }

    /// Returns the next words and bytes that the caller of another member sent.
    #[doc(hidden)]
    pub fn next_foreign(&mut self) -> Option<(ProcessId, Vec<u64>, Vec<u8>)> {
        let received = self.recovery.foreign.pop_front()?;
        Some((received.from, received.words()[ENVELOPE..].to_vec(), received.tail().to_vec()))
    }

    /// Defers a peer message until the fence holds. Of two that fence, the one with the larger ballot is kept. An
    /// operator's reset has priority, because it is not repeated, unlike peer messages and campaigns.
    fn fence_first(&mut self, letter: PeerMessage, received: Received) {
        let waiting = match &self.recovery.fencing {
            Some(Fencing::PeerMessage(waiting, _)) => waiting.fences(),
            Some(Fencing::Reset { .. }) => return,
            Some(Fencing::Campaign) | None => None,
        };
        if waiting <= letter.fences() {
            self.recovery.fencing = Some(Fencing::PeerMessage(Box::new(letter), received));
        }
    }

    fn hand_letter<A: Application>(&mut self, letter: &PeerMessage, received: &Received, app: &mut A) -> Option<()> {
        let (from, ballot) = (received.from, self.replica.ballot());
        if !self.fits_application(from, letter, app) || !self.meets_application(letter) {
            // The application lacks deliveries that were lost with a connection, is still restoring a state, or has
            // deliveries of another history. The donor sends the missing deliveries and the state again.
            return Some(());
        }
        let done = self.with_replica(app, |replica, out| replica.on_peer_message(from, letter, out));
        done.ok()?;
        self.note_transferred(from, letter);
        // The message may also have given up slots.
        self.note_state();
        self.follow(ballot);
        if let (PeerMessage::Install { ballot, .. }, [_, position, generation, ..]) = (letter, received.words())
            && *generation != 0
            && self.replica.promised() == *ballot
        {
            self.resume_stream(from, Start { position: *position, generation: *generation });
        }
        Some(())
    }

    /// Stops reading a stream if this member now leads, after an operation that may have replaced the ballot `before`.
    fn follow(&mut self, before: Ballot) {
        let ballot = self.replica.ballot();
        if ballot != before && ballot.leader() == self.fabric.me() {
            self.streams.reads = None;
        }
    }

    /// Revokes the access to the stream rings here from all members but `except`. Call it again until it returns true:
    /// then the revocation has taken effect, all earlier writes of those members have landed, and no write of theirs
    /// lands any more.
    #[doc(hidden)]
    pub fn fence(&mut self, except: Option<ProcessId>) -> bool {
        self.streams.fence(&mut self.fabric, except)
    }

    /// Grants a member write access to its stream ring here.
    #[doc(hidden)]
    pub fn grant_stream(&mut self, to: ProcessId) {
        self.streams.grant(&mut self.fabric, to);
    }

    /// Performs the operation that waits for the fence, if the fence holds. Returns whether it was performed.
    fn go_on_fencing<A: Application>(&mut self, app: &mut A) -> bool {
        let leader = match &self.recovery.fencing {
            Some(Fencing::PeerMessage(letter, _)) => letter.fences().map(Ballot::leader),
            Some(Fencing::Campaign | Fencing::Reset { .. }) => None,
            None => return false,
        };
        if !self.fence(leader) {
            return false;
        }
        // Entries written before the fence count. Entries that wait for a body at this moment do not.
        self.gate.disturb();
        while self.take_stream(app) {}
        let fenced = self.recovery.fencing.take();
        if let Some(leader) = leader {
            self.grant_stream(leader);
        }
        match fenced {
            Some(Fencing::PeerMessage(letter, received)) => {
                let taken = self.hand_letter(&letter, &received, app).is_some();
                self.outputs.counts.rejected += u64::from(!taken);
            }
            Some(Fencing::Campaign) => self.start_campaign(app, |replica, out| replica.campaign(out)),
            Some(Fencing::Reset { ends, empty }) => {
                let ahead = self.is_ahead() && !empty;
                self.start_campaign(
                    app,
                    |replica, out| {
                        if ahead { Err(Rejected::Ahead) } else { replica.reset(ends, empty, out) }
                    },
                );
            }
            None => {}
        }
        true
    }

    fn start_campaign<A: Application>(
        &mut self,
        app: &mut A,
        campaign: impl FnOnce(&mut Replica, &mut Out<'_, A>) -> Result<Ballot, Rejected>,
    ) {
        let before = self.replica.ballot();
        self.outputs.stream.clear();
        // The campaign was valid when it was requested; an error means that it has become obsolete.
        let _ = self.with_replica(app, campaign);
        self.streams.reads = None;
        self.follow(before);
    }

    /// Passes a tick to the state machine.
    fn tick<A: Application>(&mut self, app: &mut A) {
        let before = self.replica.ballot();
        if let Some((leader, stream)) = self.streams.read_mut()
            && let Some(HeldRecord { end, at, .. }) = &stream.held
            && let Ok((crate::Item::Stream(item), _)) = crate::Item::decode(&stream.record[..*end], *at)
            && self.replica.stream_waits(leader, &item)
        {
            let mut out = Out { outputs: &mut self.outputs, stores: &self.stores, app };
            self.replica.on_stalled(&item, &mut out);
        }
        self.with_replica(app, |replica, out| replica.on_tick(out));
        self.follow(before);
    }

    /// Informs the state machine that all links with a member are up (again).
    pub(super) fn peer_connected<A: Application>(&mut self, process: ProcessId, app: &mut A) {
        // An error is impossible: the state machine knows this member.
        let _ = self.with_replica(app, |replica, out| replica.on_connected(process, out));
        self.send_outgoing();
    }

    /// Sends the peer messages and bodies that the state machine has queued.
    pub(super) fn send_outgoing(&mut self) {
        if self.outputs.letters.is_empty() {
            return;
        }
        let mut words = Vec::new();
        for outgoing in std::mem::take(&mut self.outputs.letters) {
            words.clear();
            match outgoing {
                Outgoing::PeerMessage { to, letter } => self.send_state_letter(to, &letter, &mut words),
                Outgoing::Body { to, client, slot, spare } => self.send_body(to, client, slot, spare, &mut words),
            }
        }
        self.gate.disturb();
    }

    fn send_state_letter(&mut self, to: ProcessId, letter: &PeerMessage, words: &mut Vec<u64>) {
        let installs = matches!(letter, PeerMessage::Install { .. });
        if !self.is_connected_to(to) {
            // The state machine repeats the message when the links are up.
            return;
        }
        if self.is_held_back(to, letter) {
            return;
        }
        words.extend_from_slice(&[LETTER, 0, 0]);
        letter.encode(words);
        if installs && self.assemblers[to.index()].has_room(words.len(), 0, self.letter_bytes) {
            // The state contains all stream entries that were written so far, so the follower's stream restarts after
            // them. The stream must not restart if this message is dropped here: an earlier message may still arrive,
            // and the stream then resumes at the position in that message.
            let start = self.start_stream(to).unwrap_or(Start::NONE);
            words[1..ENVELOPE].copy_from_slice(&[start.position, start.generation]);
        }
        self.send_letter(to, words, &[]);
    }

    fn send_body(&mut self, to: ProcessId, client: ClientId, slot: u64, spare: bool, words: &mut Vec<u64>) {
        let at = usize::from(client.0);
        let Some((body, store)) = self.bodies.get(at).zip(self.stores.get(at)) else { return };
        let reader = &body.ring.reader;
        let Some(record) = store.record(slot, reader.touched(), reader.geometry().lap_cells()) else {
            // The body is no longer here. A member that lacks a message that was delivered here needs the application's
            // state.
            if let Some(sequence) = self.replica.sequence_of(client, slot).filter(|_| !spare) {
                let gone = PeerMessage::Gone(crate::MessageRef { client, sequence });
                words.extend_from_slice(&[LETTER, 0, 0]);
                gone.encode(words);
                self.send_letter(to, words, &[]);
            }
            return;
        };
        words.extend_from_slice(&[BODY, u64::from(client.0), 0]);
        words.extend_from_slice(record);
        self.send_letter(to, words, &[]);
    }

    /// Handles a client's message that another member forwarded. `words` holds the header and the payload. Returns
    /// `None` if the message is invalid.
    fn take_forwarded<A: Application>(&mut self, client: ClientId, words: &[u64], app: &mut A) -> Option<()> {
        let at = usize::from(client.0);
        let longest = self.bodies.get(at)?.ring.reader.geometry().max_payload().next_multiple_of(8);
        if words.len() * 8 > longest {
            return None;
        }
        self.drop_void();
        let header = Header::decode(words, words.len() * 8, &self.topology).ok()?;
        let whole = Header::words(header.groups()) + header.payload_bytes.div_ceil(8);
        if words.len() != whole {
            return None;
        }
        let slot = match self.replica.admit(client, &header) {
            Ok(Some(slot)) => slot,
            // The message is held or delivered here. Or this member lags, and requests the message again when it has
            // room.
            Ok(None) | Err(Rejected::BeyondWindow { .. }) => return Some(()),
            Err(_) => return None,
        };
        self.stores[at].put_aside(slot, &header, words.to_vec());
        self.with_replica(app, |replica, out| replica.on_message(client, &header, out)).ok()?;
        self.note_held(client, false);
        // The replaced message may have been the last one in the ring whose space was not free.
        self.outputs.touch(client);
        self.count_rare_bytes();
        Some(())
    }
}

const _: () = assert!(ENVELOPE == 3, "an envelope is read as three words");
