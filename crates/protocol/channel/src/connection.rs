//! One connection: both directions, credits, and its end. Pure.

use std::time::Duration;

use stentor_fabric::{PostError, ProcessId, QpState, Status};

use crate::command::{Notice, Op, Outcome, Recv, Send, Way, What};
use crate::control::{Controls, Snapshot, check_size};
use crate::ending::Ending;
use crate::error::{PostErrorKind, Reason, Violation};
use crate::inbound::{Inbound, Incoming, Piece};
use crate::lent::Lent;
use crate::outbound::Outbound;
use crate::{Cause, ChannelError, Config, Kind, Operation, Scheme, Tag, WriteError, mutant};

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Messages go both ways, or may.
    Open,
    /// Nothing is posted any more; what the fabric has is on its way back.
    Draining,
    /// The fabric has given everything back.
    Over,
}

/// One connection with one peer: a state machine that is told what completed, and says what to post.
///
/// Whoever drives it posts what [`next_recv`](Connection::next_recv) says before what
/// [`next_send`](Connection::next_send) says: credits stand for receives that are posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    config: Config,
    peer: ProcessId,
    number: u32,
    /// How often its number was opened, this time included.
    life: u32,
    phase: Phase,
    outbound: Outbound,
    inbound: Inbound,
    controls: Controls,
    /// What was granted to the peer as far as it was told.
    told: [u64; 2],
    /// A receive for the other end's greeting was posted; we have greeted; the other end has.
    listens: bool,
    has_greeted: bool,
    is_known: bool,
    ending: Ending,
    /// To be told to the peer before all is over.
    gives_up: Option<Reason>,
    lent: Lent,
    error: Option<ChannelError>,
    to_tell: ToTell,
}

/// What the owner was not told yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct ToTell {
    opened: bool,
    failed: bool,
    closed: bool,
}

impl Connection {
    /// One end of connection `number` with `peer`, which both ends have opened `life` times, this time included.
    ///
    /// # Panics
    /// If [`Config::check`] would refuse the parameters.
    #[must_use]
    pub fn new(config: &Config, peer: ProcessId, number: u32, life: u32) -> Self {
        assert_eq!(config.check(), Ok(()), "parameters that were not checked");
        Connection {
            config: *config,
            peer,
            number,
            life,
            phase: Phase::Open,
            outbound: Outbound::new(config),
            inbound: Inbound::new(config),
            controls: Controls::new(config),
            told: [0; 2],
            listens: false,
            has_greeted: false,
            is_known: false,
            ending: Ending::default(),
            gives_up: None,
            lent: Lent::new(config),
            error: None,
            to_tell: ToTell::default(),
        }
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// Its number between the two processes.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its parameters.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Operations that the fabric has not given back.
    #[must_use]
    pub fn lent(&self) -> u32 {
        self.lent.total()
    }

    /// Whether it is over and everything is given back.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether nothing ends yet: messages go both ways, or may.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns whether both ends have greeted, and nothing that this one has sent is on its way: the other end can open without it.
    #[must_use]
    pub fn has_met(&self) -> bool {
        self.has_greeted && self.is_known && self.lent.sends() == 0
    }

    /// Why it failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&ChannelError> {
        self.error.as_ref()
    }

    #[inline]
    fn tag(&self, kind: Kind, sequence: u32) -> Tag {
        let connection = if mutant!(self.config.mutant, NoConnectionInTag) { 0 } else { self.number };
        Tag { connection, kind, sequence }
    }

    /// Begins to write a message; returns its number on this connection, from 0. Its bytes are asked for by
    /// [`next_send`](Connection::next_send), in their order.
    ///
    /// # Errors
    /// See [`WriteError`].
    #[inline]
    pub fn begin(&mut self, bytes: u64) -> Result<u64, WriteError> {
        if self.phase != Phase::Open || self.ending.finishing {
            return Err(WriteError::Closed);
        }
        self.outbound.begin(bytes)
    }

    /// How much of the message that is being written was not handed over yet; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.outbound.left()
    }

    /// Takes back the message that was begun last, as if it had never begun. Returns false if there is none, or if part of it
    /// was sent.
    pub fn take_back(&mut self) -> bool {
        self.outbound.take_back()
    }

    /// How long the message is that is being written; `None` if there is none.
    #[inline]
    pub(crate) fn writing(&self) -> Option<u64> {
        self.outbound.writing()
    }

    /// The next receive to post.
    pub fn next_recv(&mut self) -> Option<Recv> {
        if self.phase != Phase::Open || self.ending.said_last {
            return None;
        }
        let (op, sequence) = if !std::mem::replace(&mut self.listens, true) {
            (Op { way: Way::Recv, kind: Kind::Greeting, place: 0 }, self.life)
        } else if let Some(op) = self.controls.next_recv() {
            (op, 0)
        } else {
            self.inbound.next_recv()?
        };
        self.lent.recv(op);
        let ignore = match op.kind {
            Kind::Length => Tag::ANY_SEQUENCE | Tag::OR_CONTROL,
            Kind::Control => Tag::ANY_SEQUENCE,
            Kind::Payload if self.config.scheme == Scheme::Eager => Tag::ANY_MESSAGE,
            Kind::Payload | Kind::Greeting => 0,
        };
        Some(Recv { op, tag: self.tag(op.kind, sequence), ignore })
    }

    /// The next message to send, if one may be sent: a control message, or a part of the message that is being written.
    pub fn next_send(&mut self) -> Option<Send> {
        self.next_control().or_else(|| self.next_part())
    }

    /// The next control message to send, if one is due.
    pub fn next_control(&mut self) -> Option<Send> {
        // Who gives up before it greets says that.
        let (op, sequence, snapshot) = if self.has_greeted || self.phase != Phase::Open {
            let snapshot = self.due()?;
            let (op, sequence) = self.controls.take(&self.config);
            (op, sequence, snapshot)
        } else {
            (Op { way: Way::Send, kind: Kind::Greeting, place: 0 }, self.life, self.greet()?)
        };
        self.lent.send();
        Some(Send { op, tag: self.tag(op.kind, sequence), what: What::Control(snapshot.words(&self.config)) })
    }

    /// What to say first, when all receives are posted.
    fn greet(&mut self) -> Option<Snapshot> {
        let windows = self.inbound.windows();
        let granted = self.inbound.granted();
        let ready = self.listens && (0..2).all(|which| granted[which] >= windows[which]);
        if self.phase != Phase::Open || !ready {
            return None;
        }
        self.has_greeted = true;
        self.told = granted;
        Some(Snapshot { granted, ..Snapshot::default() })
    }

    /// The next part of the message that is being written, if it may be sent.
    #[inline]
    pub fn next_part(&mut self) -> Option<Send> {
        if self.phase != Phase::Open || !self.is_known {
            return None;
        }
        let (op, sequence, what) = self.outbound.next()?;
        self.lent.send();
        Some(Send { op, tag: self.tag(op.kind, sequence), what })
    }

    /// The sequence of what arrived in a place of this kind, where places follow from sequences: [`Scheme::Counted`].
    ///
    /// [`Scheme::Counted`]: crate::Scheme::Counted
    #[must_use]
    pub fn sequence_at(&self, kind: Kind, place: u16) -> u32 {
        match kind {
            Kind::Control => self.controls.sequence_at(&self.config, place),
            Kind::Greeting => self.life,
            kind => self.inbound.sequence_at(kind, place),
        }
    }

    /// What the peer must be told now, if anything.
    fn due(&mut self) -> Option<Snapshot> {
        if !self.is_known || !self.controls.has_room() || self.ending.said_last {
            return None;
        }
        if self.phase != Phase::Open {
            let gave_up = self.gives_up.take()?;
            return Some(Snapshot { gave_up: Some(gave_up), ..self.snapshot() });
        }
        let snapshot = self.snapshot();
        let windows = self.inbound.windows();
        let batch = |which: usize| (windows[which] / 2).max(1);
        let credit = !self.all_came() && (0..2).any(|which| snapshot.granted[which] - self.told[which] >= batch(which));
        let finished = snapshot.finished.is_some() && !self.ending.said_finished;
        let last = snapshot.last.is_some();
        if !(credit || finished || last || self.controls.owes_an_answer()) {
            return None;
        }
        self.told = snapshot.granted;
        self.ending.said_finished |= snapshot.finished.is_some();
        self.ending.said_last |= last;
        Some(snapshot)
    }

    /// Whether all that the peer will ever send has come.
    fn all_came(&self) -> bool {
        self.ending.peer_finished.is_some_and(|total| self.inbound.has_all(total))
    }

    /// All there is to say.
    fn snapshot(&self) -> Snapshot {
        let finished = (self.ending.finishing && self.outbound.is_staged()).then(|| self.outbound.sent());
        // Nothing will be said after this: the peer has sent everything, so it needs no credits.
        let last = (finished.is_some() && self.all_came()).then(|| self.controls.sent() as u32 + 1);
        Snapshot { granted: self.inbound.granted(), finished, last, seen: self.controls.seen(), gave_up: None }
    }

    /// The next receive to ask back from the fabric. It still completes: given back, or used meanwhile.
    pub fn next_cancel(&mut self) -> Option<Op> {
        self.lent.next_cancel()
    }

    /// What most completions are: a whole message, the next one, while neither end is about to end. Whether it was that; then it
    /// is given back, as with [`completed`](Connection::completed), and nothing follows but that it can be read.
    #[inline]
    pub fn takes_next(&mut self, op: Op, kind: Kind, sequence: u32, bytes: u32) -> bool {
        let is_length = (op.way, op.kind, kind) == (Way::Recv, Kind::Length, Kind::Length);
        let ends = self.phase != Phase::Open || self.ending.has_begun();
        if !is_length || ends || !self.inbound.takes_next(op.place, sequence, bytes) {
            return false;
        }
        self.lent.length_came(op.place);
        true
    }

    /// An operation is given back.
    pub fn completed(&mut self, op: Op, outcome: &Outcome) {
        if let Outcome::Received { kind, sequence, bytes, .. } = outcome
            && self.takes_next(op, *kind, *sequence, *bytes)
        {
            return;
        }
        self.lent.gave_back(op);
        if self.phase == Phase::Open {
            let mut about = op;
            let result = match outcome {
                Outcome::Sent => self.sent(op),
                Outcome::Received { kind, sequence, bytes, words } => {
                    about = Op { kind: *kind, ..op };
                    self.received(op, *kind, *sequence, *bytes, words)
                }
                Outcome::GivenBack => Ok(()),
                Outcome::Failed(status) => self.failed(op, *status),
            };
            if let Err(cause) = result {
                self.fail(self.operation(about), cause);
            }
        } else if op.kind == Kind::Greeting && matches!(outcome, Outcome::Received { .. }) {
            self.is_known = true;
        }
        self.advance();
    }

    #[inline]
    fn sent(&mut self, op: Op) -> Result<(), Violation> {
        let known = match op.kind {
            Kind::Control => self.controls.done(op.place),
            Kind::Greeting => self.has_greeted,
            kind => self.outbound.done(kind, op.place),
        };
        assert!(known || self.config.mutant != crate::Mutant::None, "{op:?} completed, and was not posted");
        Ok(())
    }

    fn failed(&mut self, op: Op, status: Status) -> Result<(), Violation> {
        if mutant!(self.config.mutant, ErrorDropped) {
            return Ok(());
        }
        if mutant!(self.config.mutant, ErrorIsSuccess) {
            return if op.way == Way::Send { self.sent(op) } else { Ok(()) };
        }
        Err(Cause::Fabric(status))
    }

    #[inline]
    fn received(&mut self, op: Op, kind: Kind, sequence: u32, size: u32, words: &[u64; 8]) -> Result<(), Violation> {
        let fits = kind == op.kind || (op.kind, kind) == (Kind::Length, Kind::Control) && self.config.spare() > 0;
        if !fits {
            return Err(Cause::Nonsense("a receive took what it was not posted for"));
        }
        match kind {
            Kind::Length => self.inbound.length(op.place, sequence, size, words[0])?,
            Kind::Payload => self.inbound.payload(op.place, sequence, size)?,
            Kind::Control => {
                match op.kind {
                    Kind::Length => self.inbound.stranger(op.place),
                    _ => self.controls.give_back(op.place),
                }
                self.controls.came(&self.config, sequence, size)?;
                self.heard(&Snapshot::read(words, &self.config)?)?;
            }
            Kind::Greeting => {
                self.is_known = true;
                check_size(size)?;
                self.heard(&Snapshot::read(words, &self.config)?)?;
                self.to_tell.opened = true;
            }
        }
        let more = self.ending.peer_finished.is_some_and(|total| self.inbound.has_more_than(total));
        if more { Err(Cause::Nonsense("it sent more than it says")) } else { Ok(()) }
    }

    /// The peer said something; perhaps less than it said before.
    fn heard(&mut self, snapshot: &Snapshot) -> Result<(), Violation> {
        if let Some(reason) = snapshot.gave_up {
            return Err(Cause::PeerGaveUp(reason));
        }
        self.controls.peer_saw(snapshot.seen)?;
        if !self.outbound.grant(snapshot.granted) && self.config.mutant == crate::Mutant::None {
            return Err(Cause::Nonsense("it grants more than its window"));
        }
        if let Some(total) = snapshot.finished {
            if self.ending.peer_finished.is_some_and(|before| before != total) {
                return Err(Cause::Nonsense("it finished twice"));
            }
            self.ending.peer_finished = Some(total);
        }
        self.ending.peer_last = self.ending.peer_last.or(snapshot.last);
        Ok(())
    }

    fn operation(&self, op: Op) -> Operation {
        match (op.kind, op.way) {
            (Kind::Greeting, _) => Operation::Open,
            (Kind::Control, _) => Operation::Control,
            (kind, Way::Send) => Operation::Write(self.outbound.message_at(kind, op.place)),
            (_, Way::Recv) => Operation::Read(self.inbound.number()),
        }
    }

    /// The message that is to be read next, once its length has arrived.
    #[must_use]
    pub fn incoming(&self) -> Option<Incoming> {
        if self.phase == Phase::Open { self.inbound.incoming() } else { None }
    }

    /// The next part of it, once that has arrived. It stays where it is until [`consume`](Connection::consume).
    #[inline]
    pub fn piece(&mut self) -> Option<Piece> {
        if self.phase != Phase::Open {
            return None;
        }
        self.inbound.piece().unwrap_or_else(|cause| {
            self.fail(Operation::Read(self.inbound.number()), cause);
            None
        })
    }

    /// The part was read: its memory takes what comes next.
    #[inline]
    pub fn consume(&mut self, piece: &Piece) {
        if self.phase == Phase::Open {
            self.inbound.consume(piece);
            self.advance();
        }
    }

    /// Whether the peer has finished and everything was read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.all_came() && self.inbound.is_read()
    }

    /// Nothing more will be written; reading goes on. When both ends have finished and read, the connection closes.
    ///
    /// # Errors
    /// [`WriteError::Busy`], if a message is handed over in part.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if let Some(left) = self.left() {
            return Err(WriteError::Busy { left });
        }
        self.finish_behind();
        Ok(())
    }

    /// [`finish`](Connection::finish) when all of the message that was begun is handed over, which the caller promises.
    pub fn finish_behind(&mut self) {
        self.ending.finishing = true;
        self.advance();
    }

    /// [`finish`](Connection::finish), and what comes is not read any more. Over when the peer has finished, too.
    ///
    /// # Errors
    /// As there.
    pub fn close(&mut self) -> Result<(), WriteError> {
        self.finish()?;
        self.discard();
        Ok(())
    }

    /// What comes is not read any more.
    pub fn discard(&mut self) {
        self.ending.discarding = true;
        self.advance();
    }

    /// Gives the connection up at once, and says so to the peer. Over when the fabric has given everything back; and if the
    /// peer was greeted and is not there yet, when it comes and is told, or its queue pair breaks.
    pub fn abort(&mut self) {
        self.fail(Operation::Close, Cause::Aborted);
        self.advance();
    }

    /// The same because the owner has waited for so long, by its own clock: for a peer that never comes, for credits that it
    /// does not give, or for messages that it does not send.
    pub fn time_out(&mut self, waited: Duration) {
        let operation = match (self.is_known, self.left()) {
            (false, _) => Operation::Open,
            (true, Some(_)) => Operation::Write(self.outbound.last()),
            (true, None) => Operation::Read(self.inbound.number()),
        };
        self.fail(operation, Cause::TimedOut(waited));
        self.advance();
    }

    /// Whether the fabric has this receive.
    #[inline]
    #[must_use]
    pub fn has_posted(&self, op: Op) -> bool {
        self.lent.has(op)
    }

    /// All receives are given back, unused: where they are not the fabric's to give back.
    pub fn give_back_receives(&mut self) {
        self.lent.give_back_receives();
    }

    /// The peer wrote where nothing was asked for.
    pub fn surprised(&mut self, op: Op) {
        self.fail(self.operation(op), Cause::Nonsense("it wrote where it was not granted"));
        self.advance();
    }

    /// The fabric did not take an operation that this connection wanted to post.
    pub fn refused(&mut self, op: Op, error: PostError) {
        let operation = self.operation(op);
        self.completed(op, &Outcome::GivenBack);
        self.fail(
            operation,
            match error {
                // It broke a moment ago, and the endpoint has not heard of it yet.
                PostError::NotReady { state: QpState::Error, .. } => Cause::Broken,
                error => Cause::Refused(PostErrorKind(error)),
            },
        );
        self.advance();
    }

    /// The fabric's connection is gone, and with it everything that was posted: all of it completed before this.
    pub fn broken(&mut self) {
        if !self.config.mutant.hides_errors() {
            let operation = if self.is_known { Operation::Control } else { Operation::Open };
            self.fail(operation, Cause::Broken);
        }
        self.gives_up = None;
        self.lent.forget_cancels();
        self.advance();
    }

    /// The first failure counts.
    fn fail(&mut self, operation: Operation, cause: Cause) {
        if self.phase != Phase::Open {
            return;
        }
        self.gives_up = match cause {
            Cause::PeerGaveUp(_) | Cause::Broken => None,
            Cause::Aborted => Some(Reason::Aborted),
            _ => Some(Reason::Error),
        };
        self.error = Some(ChannelError { connection: self.number, peer: self.peer, operation, cause });
        self.to_tell.failed = true;
        self.drain();
    }

    /// Asks everything back.
    fn drain(&mut self) {
        self.phase = Phase::Draining;
        // Whom we have greeted is told that we gave up when it greets back.
        let awaited = self.may_still_say();
        self.lent.ask_back(awaited);
    }

    /// What follows from what happened.
    #[inline]
    fn advance(&mut self) {
        if self.phase == Phase::Open && self.ending.discarding {
            while let Some(piece) = self.piece() {
                self.inbound.consume(&piece);
            }
        }
        if self.phase == Phase::Open && self.ending.said_last {
            // The peer's last message names how many there were: then nothing is under way in either direction.
            let last = self.ending.peer_last == Some(self.controls.arrived());
            let idle = self.controls.is_idle() && self.lent.sends() == 0;
            if last && idle && self.inbound.is_read() {
                self.drain();
            }
        }
        let early = mutant!(self.config.mutant, CloseFreesEarly);
        // Who gives up tries to say so; who cannot at once leaves it.
        if self.phase == Phase::Draining && (self.lent() == 0 || early) && !self.may_still_say() {
            self.phase = Phase::Over;
            self.to_tell.closed = true;
        }
    }

    fn may_still_say(&self) -> bool {
        let to_say = self.gives_up.is_some() && !self.ending.said_last;
        to_say && if self.is_known { self.controls.has_room() } else { self.has_greeted }
    }

    /// What the owner is to be told next.
    pub fn next_notice(&mut self) -> Option<Notice> {
        if std::mem::take(&mut self.to_tell.opened) {
            return Some(Notice::Opened);
        }
        if self.error.is_none()
            && let Some(number) = self.outbound.next_written()
        {
            return Some(Notice::Written(number));
        }
        if std::mem::take(&mut self.to_tell.failed) {
            return self.error.map(Notice::Failed);
        }
        std::mem::take(&mut self.to_tell.closed).then_some(Notice::Closed)
    }
}
