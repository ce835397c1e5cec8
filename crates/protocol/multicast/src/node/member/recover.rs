//! What the state machine's recovery needs of a node: letters, fences, ticks, campaigns.
//!
//! # Invariants
//! - A letter that fences is handed over only when nobody but its ballot's leader can write a stream here, and what was
//!   written is processed. Meanwhile everything else goes on: nothing is promised yet.
//! - A state that is to be installed and the place where the stream goes on travel in one letter.

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

/// First word of what goes as a letter: a letter of the state machine; a body; words of the caller's.
const LETTER: u64 = 1;
const BODY: u64 = 2;
const FOREIGN: u64 = 3;
/// The sender's wall clock, and the time of the group that it leads: an envelope with nothing in it.
pub(super) const CLOCK: u64 = 4;
/// A letter about a transfer of the application's state.
pub(super) const TRANSFER: u64 = 5;
/// Words of an envelope: what it is; the stream's position and generation, or the client and 0, or two clocks.
pub(super) const ENVELOPE: usize = 3;

/// Time between ticks of the state machine.
const TICK: Duration = Duration::from_millis(2);
/// The time between ticks while a member rests.
const REST_TICK: Duration = Duration::from_millis(5);

/// What a member keeps for the time when something fails.
#[derive(Debug)]
pub(super) struct Recovery {
    /// What waits for the fence.
    pub(super) fencing: Option<Fencing>,
    /// Members whose links came up since the last step.
    pub(super) fresh: Vec<ProcessId>,
    /// Letters that came.
    pub(super) received: VecDeque<Received>,
    /// Those of them that are the caller's.
    pub(super) foreign: VecDeque<Received>,
    /// Clients that are away.
    pub(super) absence: Absence,
    /// Members that stand still.
    pub(super) expelling: Expelling,
    /// Time between ticks of the state machine.
    tick: Duration,
    /// The time between ticks while this member rests.
    rest_tick: Duration,
    rests: bool,
    /// When the next one is.
    due: Duration,
    /// The number of [states taken over](Replica::states) that were looked at.
    states: u64,
    /// Ticks so far.
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

/// What waits for the fence.
#[derive(Debug)]
pub(super) enum Fencing {
    /// A letter; and what came with it.
    PeerMessage(Box<PeerMessage>, Received),
    /// This member wants to lead.
    Campaign,
    /// An operator ends this incarnation of the group; with nothing, if `empty`.
    Reset { ends: Incarnation, empty: bool },
}

impl Recovery {
    /// Whether it is time for a tick.
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

    /// Returns how many ticks did not come since the last one, because this member rested or was not called.
    fn ticks_left_out(&self, now: Duration) -> u16 {
        if self.now == 0 {
            return 0;
        }
        let last = self.due.saturating_sub(self.interval());
        let passed = now.saturating_sub(last).as_nanos() / self.tick.as_nanos().max(1);
        passed.saturating_sub(1).min(u128::from(u16::MAX)) as u16
    }

    /// Changes the time between ticks; the next one counts from the last.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let last = self.due.saturating_sub(self.interval());
        change(self);
        self.due = last.saturating_add(self.interval());
    }
}

impl<F: Fabric> Member<F> {
    /// Asks this member to become its group's leader, in a new ballot. It takes effect in the steps that follow, if a
    /// majority of the group promises.
    ///
    /// # Errors
    /// [`Rejected::Joining`] if this process has not got its group's state yet; [`Rejected::Superseded`] if another one has
    /// taken its place.
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

    /// Whether this member takes access away from others, or is about to. Its housekeeping hears that this has taken effect, so that is due
    /// at once.
    #[inline]
    #[must_use]
    pub fn is_fencing(&self) -> bool {
        self.recovery.fencing.is_some()
    }

    /// Begins a new incarnation of this member's group in the steps that follow, if a majority of it promises: see
    /// [`Replica::reset`].
    ///
    /// # Errors
    /// See [`Replica::reset`]; [`Rejected::Ahead`] while the application gets another member's state.
    pub fn reset(&mut self, ends: Incarnation, empty: bool) -> Result<(), Rejected> {
        self.replica.check_reset(ends, empty)?;
        if self.is_ahead() && !empty {
            return Err(Rejected::Ahead);
        }
        self.gate.disturb();
        self.recovery.fencing = Some(Fencing::Reset { ends, empty });
        Ok(())
    }

    /// Asks another member of the group to take over the leadership.
    pub fn hand_over(&mut self, to: ProcessId) {
        self.outputs.letters.push(Outgoing::PeerMessage { to, letter: Box::new(PeerMessage::Lead) });
        self.gate.disturb();
    }

    /// Letters, fences and ticks. Returns whether there was anything.
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
            // Another stream may be read now, or more of a ring.
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

    /// Looks at what came with a state of another member, if one was taken over. A state may wait for bodies, so the last
    /// of them completes it, whichever way it comes.
    #[inline]
    pub(super) fn note_states(&mut self) {
        let states = self.replica.states();
        if std::mem::replace(&mut self.recovery.states, states) != states && !mutant!(self.mutant, StateUnnoted) {
            self.note_state();
        }
    }

    #[cold]
    fn note_state(&mut self) {
        // What was delivered or given up elsewhere and came with a state is free here, too: its clients wait for that.
        for (client, body) in (0..).map(ClientId).zip(&mut self.bodies) {
            if self.replica.first_held(client) > body.credited_slots {
                self.outputs.touch(client);
            }
        }
    }

    /// `None` if it was refused.
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

    /// Writes words and bytes of the caller's to another member, when the link lets it. `false`: too many wait, they are
    /// too long, or nobody is connected there; then they are lost, as they are if the connection breaks.
    #[doc(hidden)]
    pub fn send_foreign(&mut self, to: ProcessId, words: &[u64], tail: &[u8]) -> bool {
        let enveloped = [&[FOREIGN, 0, 0], words].concat();
        self.send_letter(to, &enveloped, tail)
    }

    /// The next words and bytes that came from another member's caller.
    #[doc(hidden)]
    pub fn next_foreign(&mut self) -> Option<(ProcessId, Vec<u64>, Vec<u8>)> {
        let received = self.recovery.foreign.pop_front()?;
        Some((received.from, received.words()[ENVELOPE..].to_vec(), received.tail().to_vec()))
    }

    /// The letter waits for the fence; of two that fence, the one with the larger ballot counts. An operator's word comes first: it is
    /// not said again, as letters and the wish to lead are.
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
            // What the application lacks was lost with a connection. It comes again, and the state with it.
            return Some(());
        }
        let done = self.with_replica(app, |replica, out| replica.on_peer_message(from, letter, out));
        done.ok()?;
        self.note_transferred(from, letter);
        // A letter may also say that something is given up.
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

    /// After something that may have installed another ballot than `before`.
    fn follow(&mut self, before: Ballot) {
        let ballot = self.replica.ballot();
        if ballot != before && ballot.leader() == self.fabric.me() {
            self.streams.reads = None;
        }
    }

    /// Takes the access to the stream rings here away from all members but one. Call it again until it returns true: then this
    /// has taken effect, what they wrote is here, and nothing comes after it.
    #[doc(hidden)]
    pub fn fence(&mut self, except: Option<ProcessId>) -> bool {
        self.streams.fence(&mut self.fabric, except)
    }

    /// Lets a member write its stream here.
    #[doc(hidden)]
    pub fn grant_stream(&mut self, to: ProcessId) {
        self.streams.grant(&mut self.fabric, to);
    }

    /// Hands over what waits for the fence, if it holds.
    fn go_on_fencing<A: Application>(&mut self, app: &mut A) -> bool {
        let leader = match &self.recovery.fencing {
            Some(Fencing::PeerMessage(letter, _)) => letter.fences().map(Ballot::leader),
            Some(Fencing::Campaign | Fencing::Reset { .. }) => None,
            None => return false,
        };
        if !self.fence(leader) {
            return false;
        }
        // What was written before the fence counts; what waits for a body by then does not.
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
        // It was checked when it was asked; what has changed since speaks against it.
        let _ = self.with_replica(app, campaign);
        self.streams.reads = None;
        self.follow(before);
    }

    /// Time passes.
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

    /// All links with a member are up (again).
    pub(super) fn peer_connected<A: Application>(&mut self, process: ProcessId, app: &mut A) {
        // It is a member: the state machine knows no others.
        let _ = self.with_replica(app, |replica, out| replica.on_connected(process, out));
        self.send_outgoing();
    }

    /// Puts what the state machine wrote on its way.
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
            // It is said again when the links are up.
            return;
        }
        if self.is_held_back(to, letter) {
            return;
        }
        words.extend_from_slice(&[LETTER, 0, 0]);
        letter.encode(words);
        if installs && self.assemblers[to.index()].has_room(words.len(), 0, self.letter_bytes) {
            // Whoever has this state has everything that was written before: its stream begins anew behind that. Not if
            // the letter is lost here: one before it may arrive yet, and then the stream goes on where that one says.
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
            // Delivered here and given up: who needs it needs the application's state.
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

    /// A message of a client that did not come through its ring: header and payload.
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
            // Held or delivered; or this member lags, and asks again when it has room.
            Ok(None) | Err(Rejected::BeyondWindow { .. }) => return Some(()),
            Err(_) => return None,
        };
        self.stores[at].put_aside(slot, &header, words.to_vec());
        self.with_replica(app, |replica, out| replica.on_message(client, &header, out)).ok()?;
        self.note_held(client, false);
        // What was in its place may have been the last thing in the ring that was not free.
        self.outputs.touch(client);
        self.count_rare_bytes();
        Some(())
    }
}

const _: () = assert!(ENVELOPE == 3, "an envelope is read as three words");
