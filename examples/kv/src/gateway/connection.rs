//! The connection of one TCP client.
//!
//! # States
//! A connection alternates between *reading* (no request is in flight) and *waiting* (a burst of requests is in
//! flight). It ends with *closing* (the gateway writes the last replies). If a client has shut down its sending side,
//! the gateway answers its requests before it closes the connection.
//!
//! # Invariants
//! - Requests of one client to one group take effect in the order in which they were sent, and the replies to all its
//!   requests have this order. All requests that have been received, up to [`MOST`], form a *burst*. The next burst
//!   begins when all requests of the present burst are answered.
//! - In a burst, a group receives either only queries, which its leader answers, or all requests in one order. So a
//!   client that pipelines GET after SET reads the value that it wrote, and a client that only reads needs no position
//!   in the order.
//! - A request to several groups, EXEC and WATCH begin only when all earlier requests are answered. If they are sent to
//!   groups, they end their burst.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::own;
use super::queues::{Queues, Waiter};
use super::reply::{self, Part};
use crate::command::{self, Own, Prepared, Shape, Target, Wanted};
use crate::partition::group_of;
use crate::resp::{LONGEST_REQUEST, Version, Writer, read_request};
use crate::wire::{Op, Value, put_item};

/// Maximum number of requests in a burst.
const MOST: usize = 1024;
/// Limit of replies that the client has not read, in bytes. From this limit on, the gateway reads no requests from the
/// client.
const MOST_UNREAD: usize = 1 << 20;

/// Capacity to which a connection shrinks an empty buffer, in bytes.
const KEPT: usize = 16 << 10;

/// The place of a reply that has not arrived yet, or has not been moved to the output yet.
#[derive(Default)]
struct Slot {
    /// Shape of the missing reply, or `None` if the reply has arrived.
    shape: Option<Shape>,
    reply: Vec<u8>,
}

/// The requests between MULTI and EXEC.
#[derive(Default)]
struct Transaction {
    commands: Vec<(Prepared, Vec<u8>)>,
    broken: bool,
}

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) number: u64,
    pub(super) name: Vec<u8>,
    pub(super) version: Version,
    /// The events for which epoll watches the socket.
    pub(super) watched_for: Interest,
    input: Vec<u8>,
    /// Offset in `input` of the first request that has not been parsed.
    from: usize,
    output: Vec<u8>,
    /// Number of bytes of `output` that have been written to the socket.
    sent: usize,
    slots: Vec<Slot>,
    /// Number of slots in the burst.
    used: usize,
    /// Number of slots in the burst whose replies have not arrived.
    missing: usize,
    /// Number of slots in the burst whose replies are in the output.
    out: usize,
    transaction: Option<Transaction>,
    /// Watched keys with their versions. All of them are in one group.
    watched: Vec<(Vec<u8>, i64)>,
    closing: bool,
    /// `true` if the client has shut down its sending side.
    ended: bool,
    words: Vec<(usize, usize)>,
}

/// The events for which a socket is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Interest {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

/// The parts of the gateway that a connection needs to proceed.
pub(super) struct Desk<'a> {
    pub(super) queues: &'a mut Queues,
    pub(super) groups: u16,
    pub(super) now: Instant,
    /// The number and the generation of the connection.
    pub(super) me: (u32, u32),
    pub(super) facts: own::Facts,
    /// Number of requests since the gateway's start or the last CONFIG RESETSTAT.
    pub(super) requests: &'a mut u64,
    pub(super) item: &'a mut Vec<u8>,
    /// The items of the burst that go to a single group. The fields are the group, whether the item needs a position in
    /// the order, the slot, and the end of the item in `bytes`.
    pub(super) singles: &'a mut Vec<(u16, bool, u32, usize)>,
    pub(super) bytes: &'a mut Vec<u8>,
}

/// The effect of a request on its burst.
enum Step {
    /// The next request can be read.
    Next,
    /// The burst ends before this request.
    Wait,
    /// The burst ends after this request.
    End,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, number: u64) -> Self {
        Connection {
            stream,
            number,
            name: Vec::new(),
            version: Version::Two,
            watched_for: Interest { reads: true, writes: false },
            input: Vec::new(),
            from: 0,
            output: Vec::new(),
            sent: 0,
            slots: Vec::new(),
            used: 0,
            missing: 0,
            out: 0,
            transaction: None,
            watched: Vec::new(),
            closing: false,
            ended: false,
            words: Vec::new(),
        }
    }

    /// Reads the available bytes. All connections share the buffer, because most of them are idle.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        while self.reads() {
            match self.stream.read(buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    // A read that does not fill the buffer has drained the socket.
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether the gateway reads from this client. It does not read while the client's input or output buffer
    /// is full, nor after the client has shut down its sending side. Then epoll must not watch the socket for input,
    /// because it would report the unread input again and again.
    fn reads(&self) -> bool {
        let has_room = self.input.len() - self.from < 2 * LONGEST_REQUEST;
        !self.closing && !self.ended && has_room && !self.is_full()
    }

    /// Returns the events for which the socket should be watched.
    pub(super) fn interest(&self) -> Interest {
        Interest { reads: self.reads(), writes: self.sent < self.output.len() }
    }

    /// Returns whether the client has so many unread replies that no more requests are started for it.
    pub(super) fn is_full(&self) -> bool {
        self.output.len() - self.sent >= MOST_UNREAD
    }

    /// Begins bursts until a burst waits for replies or no request is left. Begins no burst while the connection closes
    /// or the client has too many unread replies.
    pub(super) fn go_on(&mut self, desk: &mut Desk<'_>) {
        while self.missing == 0 && !self.closing && !self.is_full() && self.begin_burst(desk) {}
    }

    /// Begins a burst of the requests that have been received. Returns `false` if there was no complete request.
    fn begin_burst(&mut self, desk: &mut Desk<'_>) -> bool {
        desk.singles.clear();
        desk.bytes.clear();
        (self.used, self.out) = (0, 0);
        let input = std::mem::take(&mut self.input);
        let mut words = std::mem::take(&mut self.words);
        let mut any = false;
        while self.used < MOST {
            let rest = &input[self.from..];
            match read_request(rest, &mut words) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    if !words.is_empty() {
                        let words: Vec<&[u8]> = words.iter().map(|(from, to)| &rest[*from..*to]).collect();
                        match self.take_request(&words, desk) {
                            Step::Wait => break,
                            Step::End => {
                                (self.from, any) = (self.from + length, true);
                                break;
                            }
                            Step::Next => {}
                        }
                    }
                    (self.from, any) = (self.from + length, true);
                    if self.closing {
                        break;
                    }
                }
                Err(malformed) => {
                    self.answer_with(|writer| writer.error(&format!("ERR {}", malformed.0)));
                    self.closing = true;
                    break;
                }
            }
        }
        (self.input, self.words) = (input, words);
        if self.from == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEPT);
            self.from = 0;
        } else if self.from > LONGEST_REQUEST {
            self.input.drain(..self.from);
            self.from = 0;
        }
        self.send_burst(desk);
        self.put_out();
        any
    }

    /// Pushes the items that go to a single group into the queues. If a burst has an ordered item for a group, all its
    /// items for this group are ordered.
    fn send_burst(&mut self, desk: &mut Desk<'_>) {
        let Desk { queues, singles, bytes, now, me, .. } = desk;
        let mut from = 0;
        for (group, _, slot, to) in &**singles {
            let ordered = singles.iter().any(|(other, changes, ..)| other == group && *changes);
            let waiter = Waiter { connection: me.0, generation: me.1, slot: *slot, since: *now };
            queues.push(*group, ordered, waiter, &bytes[from..*to]);
            from = *to;
        }
    }

    fn take_request(&mut self, words: &[&[u8]], desk: &mut Desk<'_>) -> Step {
        let read = command::read(words, desk.groups, desk.item);
        let queues = self.transaction.is_some();
        let own = match &read {
            Ok(Wanted::Own(own)) => Some(*own),
            _ => None,
        };
        let step = match read {
            Err(why) => {
                if let Some(transaction) = &mut self.transaction {
                    transaction.broken = true;
                }
                self.answer_with(|writer| writer.error(&why));
                Step::Next
            }
            Ok(Wanted::Item(prepared)) if queues => {
                self.queue(prepared, desk.item);
                Step::Next
            }
            Ok(Wanted::Item(prepared)) => self.send_item(prepared, desk),
            Ok(Wanted::Own(Own::Exec)) if queues => self.exec(desk),
            Ok(Wanted::Own(Own::Watch)) if !queues => self.watch(&words[1..], desk),
            Ok(Wanted::Own(own)) if queues && !own.ends_a_transaction() => {
                self.refuse_in_transaction();
                Step::Next
            }
            Ok(Wanted::Own(own)) => {
                self.answer_own(own, words, &desk.facts);
                Step::Next
            }
        };
        if matches!(own, Some(Own::Config)) && words[1].eq_ignore_ascii_case(b"resetstat") {
            *desk.requests = 0;
        }
        *desk.requests += u64::from(!matches!(step, Step::Wait));
        step
    }

    fn send_item(&mut self, prepared: Prepared, desk: &mut Desk<'_>) -> Step {
        let Prepared { op, target, shape } = prepared;
        // TTL replies with a duration from the present time of the order, so the query needs a position in the order.
        let ordered = op.is_write() || op == Op::Ttl;
        match target {
            Target::One(group) => {
                let slot = self.wait_for(shape);
                desk.bytes.extend_from_slice(desk.item);
                desk.singles.push((group, ordered, slot, desk.bytes.len()));
                Step::Next
            }
            Target::Several(_) if self.missing > 0 => Step::Wait,
            Target::Several(groups) => {
                let waiter = self.waiter(shape, desk);
                desk.queues.push_alone(groups, op.is_write(), waiter, desk.item);
                Step::End
            }
        }
    }

    fn waiter(&mut self, shape: Shape, desk: &Desk<'_>) -> Waiter {
        let slot = self.wait_for(shape);
        Waiter { connection: desk.me.0, generation: desk.me.1, slot, since: desk.now }
    }

    fn queue(&mut self, prepared: Prepared, item: &[u8]) {
        if matches!(prepared.op, Op::Scan | Op::Dbsize | Op::Flush) {
            return self.refuse_in_transaction();
        }
        let Some(transaction) = &mut self.transaction else { return };
        transaction.commands.push((prepared, item.to_vec()));
        self.answer_with(|writer| writer.simple("QUEUED"));
    }

    /// Rejects a request between MULTI and EXEC. The rejection breaks the transaction: EXEC must have one reply for
    /// each command that the client has sent.
    fn refuse_in_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.broken = true;
        }
        self.answer_with(|writer| writer.error("ERR this command is not permitted in a transaction"));
    }

    fn exec(&mut self, desk: &mut Desk<'_>) -> Step {
        if self.missing > 0 {
            return Step::Wait;
        }
        let (Transaction { commands, broken }, watched) =
            (self.transaction.take().unwrap_or_default(), std::mem::take(&mut self.watched));
        if broken {
            self.answer_with(|writer| {
                writer.error("EXECABORT Transaction discarded because of previous errors.");
            });
            return Step::Next;
        }
        let mut groups: Vec<u16> = watched.iter().map(|(key, _)| group_of(key, desk.groups)).collect();
        for (prepared, _) in &commands {
            match &prepared.target {
                Target::One(group) => groups.push(*group),
                Target::Several(several) => groups.extend(several),
            }
        }
        groups.sort_unstable();
        groups.dedup();
        if !watched.is_empty() && groups.len() > 1 {
            self.answer_with(|writer| {
                writer.error(
                    "CROSSPART a transaction with WATCH needs all its keys in one partition: use the same {tag} in all keys",
                );
            });
            return Step::Next;
        }
        if groups.is_empty() {
            self.answer_with(|writer| writer.array(0));
            return Step::Next;
        }
        let mut batch = (commands.len() as u16).to_le_bytes().to_vec();
        commands.iter().for_each(|(_, item)| batch.extend_from_slice(item));
        let versions: Vec<[u8; 8]> = watched.iter().map(|(_, version)| version.to_le_bytes()).collect();
        let checks = watched.iter().zip(&versions).flat_map(|((key, _), version)| [&key[..], version]);
        desk.item.clear();
        put_item(Op::Exec, checks.chain([&batch[..]]), desk.item);
        let shapes = commands.into_iter().map(|(prepared, _)| prepared.shape).collect();
        let waiter = self.waiter(Shape::Exec(shapes), desk);
        desk.queues.push_alone(groups, true, waiter, desk.item);
        Step::End
    }

    fn watch(&mut self, keys: &[&[u8]], desk: &mut Desk<'_>) -> Step {
        if self.missing > 0 {
            return Step::Wait;
        }
        let group = group_of(keys[0], desk.groups);
        let known = self.watched.first().map(|(key, _)| &key[..]);
        if keys.iter().copied().chain(known).any(|key| group_of(key, desk.groups) != group) {
            self.answer_with(|writer| {
                writer.error("CROSSPART WATCH needs all its keys in one partition: use the same {tag} in all keys");
            });
            return Step::Next;
        }
        let mut batch = (keys.len() as u16).to_le_bytes().to_vec();
        keys.iter().for_each(|key| put_item(Op::Version, [*key], &mut batch));
        desk.item.clear();
        put_item(Op::Exec, [&batch[..]], desk.item);
        let waiter = self.waiter(Shape::Watch(keys.iter().map(|key| key.to_vec()).collect()), desk);
        desk.queues.push_alone(vec![group], true, waiter, desk.item);
        Step::End
    }

    fn answer_own(&mut self, own: Own, words: &[&[u8]], facts: &own::Facts) {
        match own {
            Own::Multi if self.transaction.is_some() => {
                self.answer_with(|writer| writer.error("ERR MULTI calls can not be nested"));
            }
            Own::Watch => self.answer_with(|writer| writer.error("ERR WATCH inside MULTI is not allowed")),
            Own::Exec => self.answer_with(|writer| writer.error("ERR EXEC without MULTI")),
            Own::Discard if self.transaction.is_none() => {
                self.answer_with(|writer| writer.error("ERR DISCARD without MULTI"));
            }
            Own::Multi => {
                self.transaction = Some(Transaction::default());
                self.answer_with(|writer| writer.simple("OK"));
            }
            Own::Discard | Own::Unwatch => {
                if own == Own::Discard {
                    self.transaction = None;
                }
                self.watched.clear();
                self.answer_with(|writer| writer.simple("OK"));
            }
            Own::Reset => {
                (self.transaction, self.version, self.name) = (None, Version::Two, Vec::new());
                self.watched.clear();
                self.answer_with(|writer| writer.simple("RESET"));
            }
            Own::Quit => {
                self.answer_with(|writer| writer.simple("OK"));
                self.closing = true;
            }
            Own::Hello => {
                let asked = own::version_of(words, self.version);
                if let Ok((version, name)) = &asked {
                    self.version = *version;
                    self.name = name.clone().unwrap_or_else(|| std::mem::take(&mut self.name));
                }
                let number = self.number;
                self.answer_with(|writer| match asked {
                    Ok(_) => own::hello(number, writer),
                    Err(why) => writer.error(why),
                });
            }
            Own::Client => {
                let known =
                    own::Known { number: self.number, name: self.name.clone(), address: self.stream.peer_addr().ok() };
                let mut name = None;
                self.answer_with(|writer| name = own::client(words, &known, writer));
                if let Some(name) = name {
                    self.name = name;
                }
            }
            _ => self.answer_with(|writer| own::answer(own, words, facts, writer)),
        }
    }

    /// Reserves the next slot for a reply of the state machines. Returns the slot's number.
    fn wait_for(&mut self, shape: Shape) -> u32 {
        self.next_slot().shape = Some(shape);
        self.missing += 1;
        self.used as u32 - 1
    }

    fn next_slot(&mut self) -> &mut Slot {
        if self.used == self.slots.len() {
            self.slots.push(Slot::default());
        }
        self.used += 1;
        let slot = &mut self.slots[self.used - 1];
        slot.reply.clear();
        slot.shape = None;
        slot
    }

    fn answer_with(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let version = self.version;
        write(&mut Writer { version, out: &mut self.next_slot().reply });
    }

    /// Writes the reply to an item that the state machines have answered.
    pub(super) fn answered(&mut self, slot: u32, parts: &[Part<'_>], groups: u16) {
        let (version, at) = (self.version, slot as usize);
        let Some(shape) = self.slots.get_mut(at).and_then(|slot| slot.shape.take()) else { return };
        if let Shape::Watch(keys) = &shape {
            self.note_versions(keys, parts);
        }
        // The next reply to be sent goes into the output without a copy.
        let is_next = at == self.out;
        let out = if is_next { &mut self.output } else { &mut self.slots[at].reply };
        reply::write(&shape, parts, groups, &mut Writer { version, out });
        self.missing -= 1;
        self.out += usize::from(is_next);
        if is_next || self.missing == 0 {
            self.put_out();
        }
    }

    /// Replies with an error to an item whose answer will not arrive.
    pub(super) fn failed(&mut self, slot: u32, why: &str) {
        let Some(slot) = self.slots.get_mut(slot as usize).filter(|slot| slot.shape.is_some()) else { return };
        slot.shape = None;
        Writer { version: self.version, out: &mut slot.reply }.error(why);
        self.missing -= 1;
        self.put_out();
    }

    fn note_versions(&mut self, keys: &[Vec<u8>], parts: &[Part<'_>]) {
        let Some((Value::Array(_), mut rest)) = parts.first().and_then(|(_, bytes)| Value::read(bytes)) else { return };
        for key in keys {
            let Some((Value::Integer(version), after)) = Value::read(rest) else { return };
            self.watched.push((key.clone(), version));
            rest = after;
        }
    }

    /// Moves the replies that have arrived to the output, in order, up to the first missing reply.
    fn put_out(&mut self) {
        while self.out < self.used
            && let Some(slot) = self.slots.get_mut(self.out).filter(|slot| slot.shape.is_none())
        {
            self.output.extend_from_slice(&slot.reply);
            slot.reply.clear();
            self.out += 1;
        }
    }

    /// Writes as many bytes as the socket accepts.
    ///
    /// # Errors
    /// Returns an error if the connection is broken, or if it is closing and all replies are written. In both cases the
    /// caller closes the connection.
    pub(super) fn write(&mut self) -> io::Result<()> {
        // Requests may be left that were not started because of the unread replies.
        let was_full = self.is_full();
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.output.shrink_to(KEPT);
        self.sent = 0;
        let is_over = (self.closing || (self.ended && !was_full)) && self.missing == 0;
        if is_over { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}
