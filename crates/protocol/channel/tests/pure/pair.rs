//! Two ends of a connection, joined by a fabric whose events the test performs in any permitted order.

use std::collections::BTreeMap;

use stentor_channel::{Cause, ChannelError, Config, Connection, Kind, Notice, Op, Outcome, Scheme, Tag, Way, What};
use stentor_fabric::{ProcessId, Status};

/// Content of a message of the fabric, or of a memory slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Content {
    Length { message: u64, bytes: u64, inline: u32 },
    Piece { message: u64, offset: u64, bytes: u32 },
    Control([u64; 8]),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Posted {
    op: Op,
    tag: u64,
    ignore: u64,
}

/// A message in flight to the other end. Its send may complete before or after it arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Flying {
    tag: u64,
    content: Content,
}

/// One end, with its application and its NIC.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct End {
    pub(crate) connection: Connection,
    posted: Vec<Posted>,
    unexpected: Vec<Flying>,
    /// Completions that are not reported yet. They may be reported in any order.
    completed: Vec<(Op, Outcome)>,
    memory: BTreeMap<Op, Content>,
    /// Messages in flight from this end.
    flying: Vec<Flying>,
    /// Lengths of the messages that are left to write.
    pub(crate) to_write: Vec<u64>,
    begun: u64,
    pub(crate) written: u64,
    /// Number of messages read completely.
    pub(crate) read: u64,
    /// Number of bytes read of the next message.
    offset: u64,
    pub(crate) opened: bool,
    pub(crate) failed: Option<ChannelError>,
    pub(crate) closed: bool,
    closing: bool,
    /// `true` if the application wants to close without reading arriving messages.
    closes: bool,
    reads_no_more: bool,
    /// Largest number of messages that waited for a receive, not counting hellos and messages to an end that has
    /// failed.
    pub(crate) most_unexpected: usize,
}

/// An event that may happen next. The first number of each event is *this end*, at which the event happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// The message with this index in the other end's `flying` arrives at this end.
    Arrive(usize, usize),
    /// The completion with this index in `completed` is reported to this end.
    Tell(usize, usize),
    /// The application reads a part.
    Read(usize),
    /// An operation fails at this end, and the queue pairs of both ends break.
    Break(usize, usize),
    /// The application aborts the connection.
    Abort(usize),
    /// The application stops writing and reading. It closes once the message that it is handing over is sent.
    Close(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pair {
    pub(crate) ends: [End; 2],
    /// `true` if messages arrive in the order in which they were sent.
    pub(crate) ordered: bool,
    /// `true` if control messages arrive and complete at once, to explore every order of the other messages.
    pub(crate) prompt_controls: bool,
    /// `true` if the applications read at once.
    pub(crate) eager_readers: bool,
    /// `true` if arrivals are reported at once; see [`Pair::merged`].
    merged: bool,
    pub(crate) broken: bool,
    /// First violation that was found.
    pub(crate) wrong: Option<String>,
    lengths: [Vec<u64>; 2],
}

impl Pair {
    pub(crate) fn new(config: &Config, messages: [&[u64]; 2], ordered: bool) -> Pair {
        Pair::of([*config; 2], messages, ordered)
    }

    pub(crate) fn of(configs: [Config; 2], messages: [&[u64]; 2], ordered: bool) -> Pair {
        let end = |which: usize| End {
            connection: Connection::new(&configs[which], ProcessId(1 - which as u16), 5, 1),
            posted: Vec::new(),
            unexpected: Vec::new(),
            completed: Vec::new(),
            memory: BTreeMap::new(),
            flying: Vec::new(),
            to_write: messages[which].to_vec(),
            begun: 0,
            written: 0,
            read: 0,
            offset: 0,
            opened: false,
            failed: None,
            closed: false,
            closing: false,
            closes: false,
            reads_no_more: false,
            most_unexpected: 0,
        };
        let lengths = messages.map(<[u64]>::to_vec);
        let mut pair = Pair {
            ends: [end(0), end(1)],
            ordered,
            prompt_controls: false,
            eager_readers: false,
            merged: false,
            broken: false,
            wrong: None,
            lengths,
        };
        pair.drive(0);
        pair.drive(1);
        pair
    }

    /// Returns the pair with fewer states, for searches of failure-free runs: an arrival is reported in the same step,
    /// and messages arrive in any order.
    ///
    /// The merged search still covers every run. A connection learns of a message only when its completion is reported.
    /// A run in which the message arrived earlier looks the same to both connections as the run in which it arrives at
    /// that moment, with two exceptions:
    ///
    /// - *Which* of several equal receives the message used, if it is a length or a control message. The connection
    ///   stores and returns the slots of these receives but compares them with nothing. Runs that differ in them
    ///   therefore differ only in names. Only one receive matches a piece.
    /// - *Whether* there was a receive. The search therefore checks that in every state each message in flight has a
    ///   receive that no other message uses, in whatever order the messages arrive. This condition is stronger than
    ///   what any single order requires.
    ///
    /// Fabrics with ordered arrivals are included, because their completions are reported in any order.
    pub(crate) fn merged(self) -> Pair {
        assert!(!self.ordered && self.ends.iter().all(|end| end.most_unexpected == 0));
        Pair { merged: true, ..self }
    }

    /// Checks that each message in flight, except a hello, has a matching receive that no other message uses.
    fn check_receives(&mut self) {
        for which in 0..2 {
            let end = &self.ends[which];
            let mut posted: Vec<&Posted> = end.posted.iter().collect();
            let coming = self.ends[1 - which].flying.iter();
            let homeless = coming.filter(|flying| Tag::of(flying.tag).kind != Kind::Greeting).find(|flying| {
                let place = posted.iter().position(|posted| End::matches(posted, flying.tag));
                place.map(|place| posted.swap_remove(place)).is_none()
            });
            if let Some(flying) = homeless {
                let tag = Tag::of(flying.tag);
                self.complain(format!("C3: {tag} is in flight to end {which}, which has no receive for it"));
            }
        }
    }

    fn complain(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Drives an end until no operation or notice is due.
    fn drive(&mut self, which: usize) {
        loop {
            let end = &mut self.ends[which];
            let mut worked = false;
            while let Some(op) = end.connection.next_cancel() {
                if let Some(place) = end.posted.iter().position(|posted| posted.op == op) {
                    end.posted.remove(place);
                    end.completed.push((op, Outcome::GivenBack));
                }
            }
            while let Some(recv) = end.connection.next_recv() {
                worked = true;
                end.post(Posted { op: recv.op, tag: recv.tag.bits(), ignore: recv.ignore });
            }
            if end.connection.left().is_none() && !end.to_write.is_empty() && !end.closing {
                let bytes = end.to_write[0];
                if end.connection.begin(bytes).is_ok() {
                    end.to_write.remove(0);
                    end.begun += 1;
                    worked = true;
                }
            }
            worked |= self.send(which);
            worked |= self.finish(which);
            worked |= self.eager_readers && self.read(which);
            self.listen(which);
            if !worked {
                return;
            }
        }
    }

    fn send(&mut self, which: usize) -> bool {
        let end = &mut self.ends[which];
        if self.broken {
            return false;
        }
        let Some(send) = end.connection.next_send() else { return false };
        let message = end.begun.saturating_sub(1);
        let content = match send.what {
            What::Length { bytes, inline } => Content::Length { message, bytes, inline },
            What::Payload { offset, bytes } => Content::Piece { message, offset, bytes },
            What::Control(words) => Content::Control(words),
        };
        end.flying.push(Flying { tag: send.tag.bits(), content });
        end.completed.push((send.op, Outcome::Sent));
        true
    }

    /// Finishes or closes the connection once all messages are written. Returns whether it did so now.
    fn finish(&mut self, which: usize) -> bool {
        let end = &mut self.ends[which];
        let done = end.to_write.is_empty() && end.connection.left().is_none();
        if done && std::mem::take(&mut end.closes) {
            end.closing = end.connection.close().is_ok();
            return true;
        }
        if done && !end.closing && end.connection.finish().is_ok() {
            end.closing = true;
            return true;
        }
        false
    }

    fn listen(&mut self, which: usize) {
        while let Some(notice) = self.ends[which].connection.next_notice() {
            let end = &mut self.ends[which];
            match notice {
                Notice::Opened => end.opened = true,
                Notice::Written(number) if number == end.written => end.written += 1,
                Notice::Written(number) => {
                    let expected = end.written;
                    self.complain(format!("C2: message {number} was reported as written when {expected} was next"));
                }
                Notice::Failed(error) => end.failed = Some(error),
                Notice::Closed => {
                    let lent = end.posted.len() + end.completed.len();
                    end.closed = true;
                    if lent > 0 {
                        self.complain(format!("C4: closed while {lent} operations are outstanding at the fabric"));
                    }
                }
            }
        }
    }

    /// Reads a part as the application. Returns whether there was one.
    fn read(&mut self, which: usize) -> bool {
        let (lengths, end) = (&self.lengths[1 - which], &mut self.ends[which]);
        let Some(incoming) = end.connection.incoming() else { return false };
        let Some(piece) = end.connection.piece() else { return false };
        let expected_bytes = lengths.get(end.read as usize).copied();
        let content = end.memory.get(&piece.op).copied();
        let (number, offset) = (end.read, end.offset);
        let fine = match content {
            Some(Content::Length { message, bytes, inline }) => {
                message == number && bytes == incoming.bytes && inline == piece.bytes && piece.last
            }
            Some(Content::Piece { message, offset: at, bytes }) => {
                message == number && at == offset && bytes == piece.bytes
            }
            _ => false,
        };
        let whole = offset + u64::from(piece.bytes) == incoming.bytes;
        if !fine || incoming.number != number || Some(incoming.bytes) != expected_bytes || whole != piece.last {
            self.complain(format!("C1: read {content:?} as {incoming:?} from {offset}, message {number} is next"));
            return false;
        }
        end.offset = if piece.last { 0 } else { offset + u64::from(piece.bytes) };
        end.read += u64::from(piece.last);
        end.connection.consume(&piece);
        true
    }

    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for which in 0..2 {
            let coming = self.ends[1 - which].flying.len();
            let coming = if self.ordered { coming.min(1) } else { coming };
            actions.extend((0..coming).map(|place| Action::Arrive(which, place)));
            // The order in which cancelled receives complete has no effect, so only one order is explored.
            let completed = &self.ends[which].completed;
            let back = completed.iter().position(|(_, outcome)| *outcome == Outcome::GivenBack);
            let told = |place: &usize| completed[*place].1 != Outcome::GivenBack || back == Some(*place);
            actions.extend((0..completed.len()).filter(told).map(|place| Action::Tell(which, place)));
            let mut end = self.ends[which].connection.clone();
            if !self.eager_readers && !self.ends[which].reads_no_more && end.piece().is_some() {
                actions.push(Action::Read(which));
            }
        }
        actions
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.do_one(action);
        while self.prompt_controls && self.wrong.is_none() {
            let Some(action) = self.actions().into_iter().find(|action| self.is_about_controls(*action)) else {
                return;
            };
            self.do_one(action);
        }
    }

    fn is_about_controls(&self, action: Action) -> bool {
        match action {
            Action::Arrive(which, place) => {
                matches!(self.ends[1 - which].flying[place].content, Content::Control(_))
            }
            Action::Tell(which, place) => {
                let (op, outcome) = &self.ends[which].completed[place];
                let kind = if let Outcome::Received { kind, .. } = outcome { *kind } else { op.kind };
                matches!(kind, Kind::Control | Kind::Greeting) || *outcome == Outcome::GivenBack
            }
            Action::Read(_) | Action::Break(..) | Action::Abort(_) | Action::Close(_) => false,
        }
    }

    fn do_one(&mut self, action: Action) {
        match action {
            Action::Arrive(which, place) => {
                let flying = self.ends[1 - which].flying.remove(place);
                self.ends[which].arrive(flying);
                let end = &self.ends[which];
                if end.most_unexpected > 0 {
                    self.complain(format!("C3: {} messages wait for a receive", end.most_unexpected));
                }
                let received = |(_, outcome): &(Op, Outcome)| matches!(outcome, Outcome::Received { .. });
                if self.merged
                    && let Some(place) = self.ends[which].completed.iter().position(received)
                {
                    self.do_one(Action::Tell(which, place));
                }
            }
            Action::Tell(which, place) => {
                let (op, outcome) = self.ends[which].completed.remove(place);
                self.ends[which].connection.completed(op, &outcome);
                self.drive(which);
                if self.merged {
                    self.check_receives();
                }
            }
            Action::Read(which) => {
                self.read(which);
                self.drive(which);
                if self.merged {
                    self.check_receives();
                }
            }
            Action::Break(which, place) => self.break_at(which, place),
            Action::Abort(which) => {
                self.ends[which].connection.abort();
                self.drive(which);
            }
            Action::Close(which) => {
                let end = &mut self.ends[which];
                end.to_write.clear();
                end.closes = true;
                end.reads_no_more = true;
                self.drive(which);
            }
        }
    }

    /// Breaks both queue pairs. All their operations complete. The send with index `place` of end `which` fails with
    /// `RetryExceeded`, if there is one. The other operations are flushed, except receives that have completed.
    fn break_at(&mut self, which: usize, place: usize) {
        self.broken = true;
        for (here, end) in self.ends.iter_mut().enumerate() {
            end.flying.clear();
            end.unexpected.clear();
            let posted = std::mem::take(&mut end.posted);
            let mut ops: Vec<(Op, Outcome)> = std::mem::take(&mut end.completed);
            // Receives that have completed keep their outcome. All other receives are flushed.
            let flushed = Outcome::Failed(Status::Flushed);
            let sends = ops.iter_mut().filter(|(op, outcome)| op.way == Way::Send && *outcome == Outcome::Sent);
            for (n, (_, outcome)) in sends.enumerate() {
                *outcome = if here == which && n == place { Outcome::Failed(Status::RetryExceeded) } else { flushed };
            }
            ops.extend(posted.into_iter().map(|posted| (posted.op, flushed)));
            end.completed = ops;
        }
    }

    /// Reports that the queue pairs are disconnected, after all completions were reported.
    pub(crate) fn gone(&mut self) {
        for which in 0..2 {
            assert!(self.ends[which].completed.is_empty());
            self.ends[which].connection.broken();
            self.drive(which);
        }
    }

    /// Sorts items whose order does not matter, so that equivalent states are equal.
    pub(crate) fn canonical(&mut self) {
        for end in &mut self.ends {
            end.completed.sort_by_key(|(op, _)| *op);
            if !self.ordered {
                end.flying.sort();
            }
        }
    }

    /// Returns a description of an end that failed or has unfinished work, in a pair that has no further events.
    pub(crate) fn unfinished(&self) -> Option<String> {
        for (which, end) in self.ends.iter().enumerate() {
            let (to_read, to_write) = (self.lengths[1 - which].len() as u64, self.lengths[which].len() as u64);
            let done = end.read == to_read && end.written == to_write && end.closed && end.opened;
            if !done || end.connection.lent() > 0 || end.failed.is_some() || !end.connection.has_ended() {
                let End { read, written, closed, failed, .. } = end;
                return Some(format!(
                    "end {which} read {read} of {to_read}, wrote {written} of {to_write}, closed: {closed}, {failed:?}"
                ));
            }
        }
        None
    }
}

impl End {
    fn matches(posted: &Posted, tag: u64) -> bool {
        (posted.tag ^ tag) & !posted.ignore == 0
    }

    fn arrive(&mut self, flying: Flying) {
        match self.posted.iter().position(|posted| End::matches(posted, flying.tag)) {
            Some(place) => {
                let posted = self.posted.remove(place);
                self.receive(posted.op, flying);
            }
            None => {
                let greeting = Tag::of(flying.tag).kind == Kind::Greeting;
                self.unexpected.push(flying);
                // Messages to an end that failed stay in the fabric.
                let failed = self.connection.error().is_some();
                if !greeting && !failed {
                    self.most_unexpected = self.most_unexpected.max(self.unexpected.len());
                }
            }
        }
    }

    fn post(&mut self, posted: Posted) {
        match self.unexpected.iter().position(|flying| End::matches(&posted, flying.tag)) {
            Some(place) => {
                let flying = self.unexpected.remove(place);
                self.receive(posted.op, flying);
            }
            None => self.posted.push(posted),
        }
    }

    fn receive(&mut self, op: Op, flying: Flying) {
        let tag = Tag::of(flying.tag);
        let (bytes, words) = match flying.content {
            // The first word of a message that arrives in place of its length is not a length.
            Content::Length { inline, .. } if self.is_whole(tag) => (inline, [u64::MAX; 8]),
            Content::Length { bytes, inline, .. } => (8 + inline, [bytes, 0, 0, 0, 0, 0, 0, 0]),
            Content::Piece { bytes, .. } => (bytes, [0; 8]),
            Content::Control(words) => (64, words),
        };
        // A connection ignores the words of a piece.
        debug_assert!(tag.kind != Kind::Payload || words == [0; 8]);
        self.memory.insert(op, flying.content);
        self.completed.push((op, Outcome::Received { kind: tag.kind, sequence: tag.sequence, bytes, words }));
    }

    /// Returns whether a tag marks a message that is sent in place of its length.
    fn is_whole(&self, tag: Tag) -> bool {
        let eager = self.connection.config().scheme == Scheme::Eager;
        eager && tag.kind == Kind::Length && tag.sequence & Tag::WHOLE != 0
    }

    /// Returns the number of completions of sends that are not reported yet.
    pub(crate) fn sends(&self) -> usize {
        self.completed.iter().filter(|(op, _)| op.way == Way::Send).count()
    }

    /// Returns the tag of the earliest message in flight from this end.
    pub(crate) fn first_tag(&self) -> Tag {
        Tag::of(self.flying[0].tag)
    }

    /// Adds a message of an adversary to the messages in flight from this end.
    pub(crate) fn forge(&mut self, tag: Tag, content: Content) {
        self.flying.push(Flying { tag: tag.bits(), content });
    }
}

/// Returns the cause of an end's failure.
pub(crate) fn cause(end: &End) -> Option<Cause> {
    end.failed.map(|error| error.cause)
}
