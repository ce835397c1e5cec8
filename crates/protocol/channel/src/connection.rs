//! One connection: both directions, their credits, and its end. A pure state machine.

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

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Neither closed nor failed. Messages are sent once the hellos have been exchanged.
    Open,
    /// Outstanding operations complete. Nothing more is posted except the notice of a failure to the peer.
    Draining,
    /// No operation is outstanding, and none will be posted.
    Over,
}

/// One connection with one peer: a state machine that consumes completions and returns the operations to post.
///
/// Its driver must post the receives of [`next_recv`](Connection::next_recv) before the sends of
/// [`next_send`](Connection::next_send), because the credits in control messages represent posted receives.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    config: Config,
    peer: ProcessId,
    number: u32,
    /// Number of times that this connection number has been opened, this time included.
    life: u32,
    phase: Phase,
    outbound: Outbound,
    inbound: Inbound,
    controls: Controls,
    /// Credits last announced to the peer, for lengths and pieces.
    told: [u64; 2],
    /// `true` once the receive for the peer's hello has been posted.
    listens: bool,
    /// `true` once this end has sent its hello.
    has_greeted: bool,
    /// `true` once the peer's hello has arrived.
    is_known: bool,
    ending: Ending,
    /// Reason why this end aborts, until it has been sent to the peer.
    gives_up: Option<Reason>,
    lent: Lent,
    error: Option<ChannelError>,
    to_tell: ToTell,
}

/// Flags of the notices that [`Connection::next_notice`] has yet to return.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct ToTell {
    opened: bool,
    failed: bool,
    closed: bool,
}

impl Connection {
    /// Creates one end of connection `number` with `peer`. `life` is the number of times that this end has opened the
    /// number, this time included. The ends meet only if the peer's end has the same life.
    ///
    /// # Panics
    /// Panics if [`Config::check`] refuses the parameters.
    #[must_use]
    pub fn new(config: &Config, peer: ProcessId, number: u32, life: u32) -> Self {
        assert_eq!(config.check(), Ok(()), "the parameters are invalid");
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

    /// Returns the process at the other end.
    #[must_use]
    pub fn peer(&self) -> ProcessId {
        self.peer
    }

    /// Returns the number of the connection between the two processes.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the parameters.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of operations that are outstanding at the fabric.
    #[must_use]
    pub fn lent(&self) -> u32 {
        self.lent.total()
    }

    /// Returns whether the connection is over, so that no operation is outstanding.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether the connection is open: it has not begun to drain.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns whether both ends have sent their hellos and no send of this end is outstanding. The other end can then
    /// open without further action of this one.
    #[must_use]
    pub fn has_met(&self) -> bool {
        self.has_greeted && self.is_known && self.lent.sends() == 0
    }

    /// Returns the failure, if the connection failed.
    #[must_use]
    pub fn error(&self) -> Option<&ChannelError> {
        self.error.as_ref()
    }

    #[inline]
    fn tag(&self, kind: Kind, sequence: u32) -> Tag {
        let connection = if mutant!(self.config.mutant, NoConnectionInTag) { 0 } else { self.number };
        Tag { connection, kind, sequence }
    }

    /// Begins to write a message of `bytes` bytes. Returns its number on this connection, from 0. Afterwards
    /// [`next_send`](Connection::next_send) returns the operations that send the bytes, in order.
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

    /// Returns the number of bytes of the current message that are not handed over yet, or `None` if no message is
    /// being written.
    #[inline]
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.outbound.left()
    }

    /// Withdraws the message that is being written, as if it had never been begun. Returns false if no message is being
    /// written, or if a part of it was sent.
    pub fn take_back(&mut self) -> bool {
        self.outbound.take_back()
    }

    /// Returns the length of the message that is being written, or `None` if there is none.
    #[inline]
    pub(crate) fn writing(&self) -> Option<u64> {
        self.outbound.writing()
    }

    /// Returns the next receive to post.
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

    /// Returns the next message to send, if one may be sent: a control message, or a part of the message that is being
    /// written.
    pub fn next_send(&mut self) -> Option<Send> {
        self.next_control().or_else(|| self.next_part())
    }

    /// Returns the next control message to send, if one is due.
    pub fn next_control(&mut self) -> Option<Send> {
        // An end that is aborted before it has sent its hello sends the notice of the abort instead of the hello.
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

    /// Returns the content of this end's hello, or `None` until all receives are posted.
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

    /// Returns the next part of the message that is being written, if it may be sent.
    #[inline]
    pub fn next_part(&mut self) -> Option<Send> {
        if self.phase != Phase::Open || !self.is_known {
            return None;
        }
        let (op, sequence, what) = self.outbound.next()?;
        self.lent.send();
        Some(Send { op, tag: self.tag(op.kind, sequence), what })
    }

    /// Returns the sequence of the message that arrived in slot `place` of this kind. Valid only with
    /// [`Scheme::Counted`], in which the slot determines the sequence.
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

    /// Returns the state to send to the peer in a control message, or `None` if no control message is due.
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

    /// Returns whether all messages that the peer will ever send have arrived.
    fn all_came(&self) -> bool {
        self.ending.peer_finished.is_some_and(|total| self.inbound.has_all(total))
    }

    /// Returns the complete state to send to the peer.
    fn snapshot(&self) -> Snapshot {
        let finished = (self.ending.finishing && self.outbound.is_staged()).then(|| self.outbound.sent());
        // After its last control message, this end can grant no more credits. It therefore sends that message only when
        // all messages of the peer have arrived.
        let last = (finished.is_some() && self.all_came()).then(|| self.controls.sent() as u32 + 1);
        Snapshot { granted: self.inbound.granted(), finished, last, seen: self.controls.seen(), gave_up: None }
    }

    /// Returns the next receive to cancel. The receive still completes: as cancelled, with a message that arrived
    /// before the cancel, or with an error.
    pub fn next_cancel(&mut self) -> Option<Op> {
        self.lent.next_cancel()
    }

    /// Fast path of [`completed`](Connection::completed) for the most frequent completion: the next message arrives in
    /// place of its length, and closing does not affect it. Records that completion and returns true; the message can
    /// then be read. For every other completion, changes nothing and returns false.
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

    /// Records the completion of an operation.
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
        assert!(known || self.config.mutant != crate::Mutant::None, "{op:?} completed but was not posted");
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
            return Err(Cause::Nonsense("it sent a message to a receive for another kind"));
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
        if more { Err(Cause::Nonsense("it sent more messages than it announced")) } else { Ok(()) }
    }

    /// Applies a control message of the peer, which may be older than one that was applied before.
    fn heard(&mut self, snapshot: &Snapshot) -> Result<(), Violation> {
        if let Some(reason) = snapshot.gave_up {
            return Err(Cause::PeerGaveUp(reason));
        }
        self.controls.peer_saw(snapshot.seen)?;
        if !self.outbound.grant(snapshot.granted) && self.config.mutant == crate::Mutant::None {
            return Err(Cause::Nonsense("it granted more credits than its window"));
        }
        if let Some(total) = snapshot.finished {
            if self.ending.peer_finished.is_some_and(|before| before != total) {
                return Err(Cause::Nonsense("it announced two different totals"));
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

    /// Returns the message to read next, once its length has arrived.
    #[must_use]
    pub fn incoming(&self) -> Option<Incoming> {
        if self.phase == Phase::Open { self.inbound.incoming() } else { None }
    }

    /// Returns the next part of the message that is being read, or `None` until the part has arrived. The part stays in
    /// its slot until [`consume`](Connection::consume) is called.
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

    /// Frees the slot of a part that was read, so that another message or piece can arrive in it.
    #[inline]
    pub fn consume(&mut self, piece: &Piece) {
        if self.phase == Phase::Open {
            self.inbound.consume(piece);
            self.advance();
        }
    }

    /// Returns whether the peer has finished and all its messages were read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.all_came() && self.inbound.is_read()
    }

    /// Ends the writing of messages; reading continues. This end closes when both ends have finished and it has read
    /// all messages of the peer.
    ///
    /// # Errors
    /// Returns [`WriteError::Busy`] if the message that was begun last has not been handed over completely.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if let Some(left) = self.left() {
            return Err(WriteError::Busy { left });
        }
        self.finish_behind();
        Ok(())
    }

    /// Finishes writing like [`finish`](Connection::finish), but permits an incomplete message. The caller must hand
    /// over the rest of that message later.
    pub fn finish_behind(&mut self) {
        self.ending.finishing = true;
        self.advance();
    }

    /// Finishes writing like [`finish`](Connection::finish), and discards arriving messages. This end closes when the
    /// peer has finished, too, and all its messages have arrived.
    ///
    /// # Errors
    /// See [`finish`](Connection::finish).
    pub fn close(&mut self) -> Result<(), WriteError> {
        self.finish()?;
        self.discard();
        Ok(())
    }

    /// Makes the connection discard all messages that have not been read, including those that arrive later.
    pub fn discard(&mut self) {
        self.ending.discarding = true;
        self.advance();
    }

    /// Aborts the connection if it is open. If this end has sent its hello or received the peer's, it owes the peer a
    /// notice, which it can send only after the peer's hello has arrived. The connection is over once no operation is
    /// outstanding and the notice is sent. The notice is dropped if the queue pair breaks or no control message may be
    /// sent.
    pub fn abort(&mut self) {
        self.fail(Operation::Close, Cause::Aborted);
        self.advance();
    }

    /// Aborts the connection because its owner has measured a wait of `waited`: for the peer to open its end, for
    /// credits, or for messages.
    pub fn time_out(&mut self, waited: Duration) {
        let operation = match (self.is_known, self.left()) {
            (false, _) => Operation::Open,
            (true, Some(_)) => Operation::Write(self.outbound.last()),
            (true, None) => Operation::Read(self.inbound.number()),
        };
        self.fail(operation, Cause::TimedOut(waited));
        self.advance();
    }

    /// Returns whether this receive is posted.
    #[inline]
    #[must_use]
    pub fn has_posted(&self, op: Op) -> bool {
        self.lent.has(op)
    }

    /// Records all receives as returned unused. Used on fabrics that do not know the connection's receives, because
    /// messages are WRITEs into slots.
    pub fn give_back_receives(&mut self) {
        self.lent.give_back_receives();
    }

    /// Fails the connection because the peer wrote into a slot that was not granted.
    pub fn surprised(&mut self, op: Op) {
        self.fail(self.operation(op), Cause::Nonsense("it wrote to a slot that was not granted"));
        self.advance();
    }

    /// Fails the connection because the fabric refused to post an operation.
    pub fn refused(&mut self, op: Op, error: PostError) {
        let operation = self.operation(op);
        self.completed(op, &Outcome::GivenBack);
        self.fail(
            operation,
            match error {
                // The queue pair broke, and the endpoint has not polled that event yet.
                PostError::NotReady { state: QpState::Error, .. } => Cause::Broken,
                error => Cause::Refused(PostErrorKind(error)),
            },
        );
        self.advance();
    }

    /// Fails the connection because its queue pair broke. All outstanding operations must have completed before this
    /// call.
    pub fn broken(&mut self) {
        if !self.config.mutant.hides_errors() {
            let operation = if self.is_known { Operation::Control } else { Operation::Open };
            self.fail(operation, Cause::Broken);
        }
        self.gives_up = None;
        self.lent.forget_cancels();
        self.advance();
    }

    /// Records a failure and begins to drain. Later failures are ignored.
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

    /// Begins to drain: cancels the receives.
    fn drain(&mut self) {
        self.phase = Phase::Draining;
        // If this end has sent its hello, it must inform the peer of an abort, which it can do only after the peer's
        // hello has arrived. The receive for that hello therefore stays posted.
        let awaited = self.may_still_say();
        self.lent.ask_back(awaited);
    }

    /// Performs the state changes that are due.
    #[inline]
    fn advance(&mut self) {
        if self.phase == Phase::Open && self.ending.discarding {
            while let Some(piece) = self.piece() {
                self.inbound.consume(&piece);
            }
        }
        if self.phase == Phase::Open && self.ending.said_last {
            // The peer's last control message holds the total number of its control messages. Once all have arrived,
            // nothing is in flight in either direction.
            let last = self.ending.peer_last == Some(self.controls.arrived());
            let idle = self.controls.is_idle() && self.lent.sends() == 0;
            if last && idle && self.inbound.is_read() {
                self.drain();
            }
        }
        let early = mutant!(self.config.mutant, CloseFreesEarly);
        // An end that failed or was aborted sends its notice to the peer before it is over. It skips the notice if it
        // has no room for a control message.
        if self.phase == Phase::Draining && (self.lent() == 0 || early) && !self.may_still_say() {
            self.phase = Phase::Over;
            self.to_tell.closed = true;
        }
    }

    fn may_still_say(&self) -> bool {
        let to_say = self.gives_up.is_some() && !self.ending.said_last;
        to_say && if self.is_known { self.controls.has_room() } else { self.has_greeted }
    }

    /// Returns the next notice for the owner.
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
