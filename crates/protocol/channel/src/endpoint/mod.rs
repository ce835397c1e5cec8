//! Drives connections on a fabric. Each peer has one queue pair, which carries many connections.

mod body;
mod complete;
mod peer;
mod post;

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::memory::WORD;
use stentor_fabric::{
    AccessError, Completion, ConnectError, Event, Fabric, ProcessId, Purpose, QpState, RegionId, RegisterError,
    Service, Word,
};
use stentor_link::{LinkEvent, Links, purpose, service};
use thiserror::Error;

use crate::config::CONTROLS;
use crate::layout::{Layout, load};
use crate::{Config, ConfigError, Connection, Incoming, MAX_CONNECTIONS, Notice, Scheme, WriteError, mutant};
use body::{Body, Rest};
use peer::Peer;

/// Largest number of completions per poll.
const BATCH: usize = 64;

/// Parameters of an endpoint. All but `send_depth` must be equal at all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Parameters of every connection.
    pub channel: Config,
    /// Largest number of connections that are open with one peer at the same time.
    pub connections: u16,
    /// Capacity of the send queue of one queue pair, in requests.
    pub send_depth: u32,
    /// Service of the queue pairs, which is a number. Both ends must configure the same one.
    pub service: Service,
    /// First purpose of the endpoint's regions. The endpoint uses two purposes per process, from this one upwards.
    pub first_purpose: Purpose,
}

impl EndpointConfig {
    /// Returns the configuration for connections with the parameters `channel`, at most four per peer.
    #[must_use]
    pub fn new(channel: Config) -> Self {
        EndpointConfig {
            channel,
            connections: 4,
            send_depth: 128,
            service: service::CHANNEL,
            first_purpose: purpose::CHANNEL_FIRST,
        }
    }

    /// Returns the number of receives of one connection.
    fn recvs(&self) -> u32 {
        self.channel.lengths + self.channel.pieces + CONTROLS + 1
    }

    /// Returns the number of bytes that are registered for each peer.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        2 * Layout::new(&self.channel).area_bytes() * u64::from(self.connections)
    }
}

/// Reason why an endpoint could not be created.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum EndpointError {
    /// The parameters are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The parameters exceed a limit of the fabric, or need purposes that do not exist.
    #[error("{what}: {asked} requested, but the limit of `{fabric}` is {limit}; {remedy}")]
    TooMuch {
        /// Name of the limit.
        what: &'static str,
        /// Value that the parameters require.
        asked: u64,
        /// Largest possible value.
        limit: u64,
        /// Name of the fabric.
        fabric: &'static str,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// The fabric refused to register memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The fabric refused to grant access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The fabric refused to create a queue pair.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Reason why a connection could not be opened.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// The process is not one of the endpoint's peers.
    #[error("{0} is not one of the peers")]
    UnknownPeer(ProcessId),
    /// The connection number is too large.
    #[error("connection {number}: numbers are below {limit}")]
    Number {
        /// Number that the caller passed.
        number: u32,
        /// Smallest number that is too large.
        limit: u32,
    },
    /// A connection with this number is open or closing.
    #[error("connection {number} with {peer} is open")]
    InUse {
        /// Number of the connection.
        number: u32,
        /// The other end.
        peer: ProcessId,
    },
    /// An earlier connection with this number failed, and its messages may still be in flight.
    #[error(
        "connection {number} with {peer} failed, and its number stays in use until the link is reset; use another number"
    )]
    Spent {
        /// Number of the connection.
        number: u32,
        /// The other end.
        peer: ProcessId,
    },
    /// No memory is free for another connection with the peer. Either the number of connections has reached the
    /// configured limit, or, with [`Scheme::Counted`], the queue pair broke and is not connected again, so the peer
    /// might still write to the memory of a failed connection.
    #[error("{limit} connections with {peer} are open or closing; close one, or configure more connections per peer")]
    TooMany {
        /// The other end.
        peer: ProcessId,
        /// Number of connections that are allowed.
        limit: u16,
    },
}

/// An open connection of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// Rest of a message that its writer has detached.
    rest: Option<Rest>,
    link: u32,
    area: u16,
    generation: u32,
    /// `true` if the connection is in [`Endpoint::starved`].
    is_starved: bool,
    /// `true` if the connection is in [`Endpoint::due`].
    is_due: bool,
}

/// The ends of all connections of one process, on any fabric.
pub struct Endpoint<F: Fabric> {
    fabric: F,
    config: EndpointConfig,
    layout: Layout,
    links: Links<Peer>,
    entries: Vec<Option<Entry>>,
    generations: u32,
    notices: VecDeque<(Handle, Notice)>,
    /// Connections that may have data to send but could not post: the queue pair was not connected, or a queue was
    /// full.
    starved: VecDeque<u32>,
    /// Connections that completed an operation, were read or got a detached message, and must post receives, credits or
    /// data. They are driven in the next step, so that the owner can send an answer first.
    due: Vec<u32>,
    /// Buffer for polled completions.
    completions: Box<[Completion]>,
    /// Largest number of outstanding requests on all queue pairs together.
    most_sends: u32,
    sends: u32,
}

impl<F: Fabric> Endpoint<F> {
    /// Registers memory for each peer and begins to connect to all peers.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn new(mut fabric: F, config: EndpointConfig, peers: &[ProcessId]) -> Result<Self, EndpointError> {
        let most_sends = check(&fabric, &config, peers)?;
        let layout = Layout::new(&config.channel);
        let mut links = Links::default();
        for peer in peers {
            links.push(Peer::open(&mut fabric, &config, *peer)?);
        }
        let mut endpoint = Endpoint {
            fabric,
            config,
            layout,
            links,
            entries: Vec::new(),
            generations: 0,
            notices: VecDeque::new(),
            starved: VecDeque::new(),
            due: Vec::new(),
            completions: vec![Completion::BLANK; BATCH].into(),
            most_sends,
            sends: 0,
        };
        (0..endpoint.links.len()).for_each(|place| endpoint.await_greetings(place));
        Ok(endpoint)
    }

    /// With [`Scheme::Counted`], posts one receive for a hello per connection number. A peer may send its hello before
    /// this end opens the number for the first time or again.
    fn await_greetings(&mut self, place: usize) {
        if self.config.channel.scheme == Scheme::Counted {
            self.links[place].recvs_needed += u32::from(self.config.connections);
            self.top_up(place);
        }
    }

    /// Returns the fabric.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Returns the fabric, for example to wait on it or to register memory.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Opens this end of a connection. The peer opens its end under the same number. A message may be begun before the
    /// peer has opened its end; it is sent afterwards.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(&mut self, peer: ProcessId, number: u32) -> Result<Handle, OpenError> {
        let counted = self.config.channel.scheme == Scheme::Counted;
        let limit = if counted { u32::from(self.config.connections) } else { MAX_CONNECTIONS };
        if number >= limit {
            return Err(OpenError::Number { number, limit });
        }
        let place = self.links.iter().position(|known| known.peer() == peer).ok_or(OpenError::UnknownPeer(peer))?;
        let link = &mut self.links[place];
        if link.numbers.contains_key(&number) {
            return Err(OpenError::InUse { number, peer });
        }
        if link.spent.contains(&number) {
            return Err(OpenError::Spent { number, peer });
        }
        let area = link.take_area(counted.then_some(number as u16));
        let area = area.ok_or(OpenError::TooMany { peer, limit: self.config.connections })?;
        let index = self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len());
        if index == self.entries.len() {
            self.entries.push(None);
        }
        link.numbers.insert(number, index as u32);
        self.generations += 1;
        let life = link.lives.entry(number).or_default();
        *life += 1;
        let connection = Connection::new(&self.config.channel, peer, number, *life);
        let early = link.early.remove(&number);
        let generation = self.generations;
        self.entries[index] = Some(Entry {
            connection,
            rest: None,
            link: place as u32,
            area,
            generation,
            is_starved: false,
            is_due: false,
        });
        let handle = Handle { index: index as u32, generation };
        self.drive(handle.index);
        if let Some(words) = early {
            self.greeted(handle.index, words);
        }
        Ok(handle)
    }

    fn entry(&self, handle: Handle) -> Option<&Entry> {
        let entry = self.entries.get(handle.index as usize)?.as_ref()?;
        (entry.generation == handle.generation).then_some(entry)
    }

    fn connection(&mut self, handle: Handle) -> Option<&mut Connection> {
        let entry = self.entries.get_mut(handle.index as usize)?.as_mut()?;
        (entry.generation == handle.generation).then_some(&mut entry.connection)
    }

    /// Begins to write a message of `bytes` bytes. Returns its number on the connection.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin(&mut self, handle: Handle, bytes: u64) -> Result<u64, WriteError> {
        self.connection(handle).ok_or(WriteError::Closed)?.begin(bytes)
    }

    /// Hands over the part of the begun message that may be sent now. `message` is the whole message in every call.
    /// Returns whether nothing of the message is left to hand over, which is also the case if no message was begun or
    /// the connection is over.
    ///
    /// # Errors
    /// Returns [`WriteError::OtherLength`] if the message was begun with another length, or [`WriteError::Busy`] if it
    /// was [detached](Self::detach).
    pub fn hand_over(&mut self, handle: Handle, message: &[u8]) -> Result<bool, WriteError> {
        self.hand_over_all(handle, Body::Bytes(message))
    }

    /// Hands over a message from registered memory, like [`hand_over`](Self::hand_over). The message is sent from that
    /// memory without a copy. Data that is posted inline is copied nevertheless, and so is a short message that is sent
    /// after its length in the same WRITE ([`Scheme::Counted`]).
    ///
    /// The process must have registered `region` through [`fabric_mut`](Self::fabric_mut), with itself as the writer.
    /// The message lies at `offset`, has the length with which it was begun, and must not change before
    /// [`Notice::Written`] reports its number. With [`Scheme::Counted`] the bytes up to the next multiple of 8 are
    /// sent, too.
    ///
    /// # Errors
    /// Returns the errors of [`hand_over`](Self::hand_over). Returns [`WriteError::OutOfRegion`] if `offset` is not a
    /// multiple of 8, or if the region ends before the end of the message, rounded up to a multiple of 8.
    pub fn hand_over_registered(
        &mut self,
        handle: Handle,
        region: RegionId,
        offset: u64,
        bytes: u32,
    ) -> Result<bool, WriteError> {
        let ends = offset.saturating_add(u64::from(bytes).next_multiple_of(8));
        let region_bytes = (self.fabric.memory(region).len() * WORD) as u64;
        if !offset.is_multiple_of(8) || ends > region_bytes {
            return Err(WriteError::OutOfRegion { bytes: bytes.into(), offset, region_bytes });
        }
        self.hand_over_all(handle, Body::Registered(region, offset, bytes))
    }

    fn hand_over_all(&mut self, handle: Handle, message: Body<'_>) -> Result<bool, WriteError> {
        let Some(entry) = self.entry(handle) else { return Ok(true) };
        let Some(begun) = entry.connection.writing() else { return Ok(true) };
        let given = message.bytes() as u64;
        if begun != given {
            return Err(WriteError::OtherLength { begun, given });
        }
        if let Some(rest) = &entry.rest {
            return Err(WriteError::Busy { left: rest.bytes.len() as u64 });
        }
        while self.send_part(handle.index, message) {
            let entry = self.entries[handle.index as usize].as_ref();
            if entry.is_none_or(|entry| entry.connection.left().is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Releases the message that has been begun but not completely handed over, because its writer will not call again.
    /// If no part of the message was sent, it is withdrawn as if it had never been begun. Otherwise the endpoint copies
    /// the remaining bytes, and sends them from the copy before any message that is begun later. Returns whether the
    /// message will be sent.
    ///
    /// Only this call makes an endpoint allocate memory for the bytes of a message that is written. The memory is freed
    /// once the bytes are sent, and there is at most one such copy per connection.
    ///
    /// # Errors
    /// Returns [`WriteError::OtherLength`] if the message was begun with another length.
    pub fn detach(&mut self, handle: Handle, message: &[u8]) -> Result<bool, WriteError> {
        let Some(entry) = self.entries.get_mut(handle.index as usize).and_then(Option::as_mut) else {
            return Ok(false);
        };
        let connection = &mut entry.connection;
        let (Some(begun), true) = (connection.writing(), entry.generation == handle.generation) else {
            return Ok(false);
        };
        let given = message.len() as u64;
        if begun != given {
            return Err(WriteError::OtherLength { begun, given });
        }
        if entry.rest.is_some() {
            return Ok(true);
        }
        if connection.take_back() || !connection.is_open() {
            return Ok(false);
        }
        let from = begun - connection.left().unwrap_or(0);
        let bytes = message[from as usize..].into();
        entry.rest = Some(Rest { from, bytes });
        due(entry, handle.index, &mut self.due);
        Ok(true)
    }

    /// Returns whether a part of a detached message has yet to be sent. Until all of it is sent, [`begin`](Self::begin)
    /// returns [`WriteError::Busy`].
    #[must_use]
    pub fn is_detached(&self, handle: Handle) -> bool {
        self.entry(handle).is_some_and(|entry| entry.rest.is_some())
    }

    /// Returns the number of bytes of the current message that are not handed over yet, or `None` if no message is
    /// being written.
    #[must_use]
    pub fn left(&self, handle: Handle) -> Option<u64> {
        self.entry(handle)?.connection.left()
    }

    /// Returns the message to read next, once its length has arrived.
    #[must_use]
    pub fn incoming(&self, handle: Handle) -> Option<Incoming> {
        self.entry(handle)?.connection.incoming()
    }

    /// Appends to `message` the parts of the current message that have arrived. Returns whether the message is
    /// complete. If it is, the next call begins with the next message.
    pub fn read(&mut self, handle: Handle, message: &mut Vec<u8>) -> bool {
        self.read_in_place(handle, |memory, bytes| load(memory, 0, bytes, message))
    }

    /// Reads like [`read`](Self::read), but without a copy. Calls `take` for each part that has arrived, with the words
    /// of the part's slot and the number of bytes that belong to the message. The slot is freed when `take` returns.
    pub fn read_in_place(&mut self, handle: Handle, mut take: impl FnMut(&[Word], u32)) -> bool {
        let layout = self.layout;
        let Some(entry) = self.entries.get_mut(handle.index as usize).and_then(Option::as_mut) else { return false };
        if entry.generation != handle.generation {
            return false;
        }
        let inbox = self.links[entry.link as usize].inbox;
        let mut whole = false;
        while !whole && let Some(piece) = entry.connection.piece() {
            let offset = layout.offset(u32::from(entry.area), piece.op.kind, piece.op.place) + u64::from(piece.at);
            let first = offset as usize / WORD;
            let words = (piece.bytes as usize).div_ceil(WORD);
            take(&self.fabric.memory(inbox)[first..first + words], piece.bytes);
            entry.connection.consume(&piece);
            whole = piece.last;
            due(entry, handle.index, &mut self.due);
        }
        // The read may have ended the connection: a part that broke the protocol, or the last part of the last message.
        if !entry.connection.is_open() {
            self.drive(handle.index);
        }
        whole
    }

    /// Returns whether the peer has finished and all its messages were read. Also returns true for a connection that is
    /// over.
    #[must_use]
    pub fn has_ended(&self, handle: Handle) -> bool {
        self.entry(handle).is_none_or(|entry| entry.connection.has_ended())
    }

    /// Returns whether both ends have sent their hellos and no send of this end is outstanding. Until then this end
    /// must be driven, or the other end may never receive the hello. Returns false for a connection that is over.
    #[must_use]
    pub fn has_met(&self, handle: Handle) -> bool {
        self.entry(handle).is_some_and(|entry| entry.connection.has_met())
    }

    /// Returns whether the connection is open, closing or failing, and not yet over.
    #[must_use]
    pub fn is_alive(&self, handle: Handle) -> bool {
        self.entry(handle).is_some()
    }

    /// Finishes writing; see [`Connection::finish`]. The rest of a detached message is still sent.
    ///
    /// # Errors
    /// See [`Connection::finish`]. Returns [`WriteError::Closed`] if the connection is over.
    pub fn finish(&mut self, handle: Handle) -> Result<(), WriteError> {
        let is_detached = self.is_detached(handle);
        let connection = self.connection(handle).ok_or(WriteError::Closed)?;
        if is_detached {
            connection.finish_behind();
        } else {
            connection.finish()?;
        }
        self.drive(handle.index);
        Ok(())
    }

    /// Finishes writing and discards arriving messages; see [`Connection::close`].
    ///
    /// # Errors
    /// See [`finish`](Self::finish).
    pub fn close(&mut self, handle: Handle) -> Result<(), WriteError> {
        self.finish(handle)?;
        if let Some(connection) = self.connection(handle) {
            connection.discard();
            self.drive(handle.index);
        }
        Ok(())
    }

    /// Aborts the connection; see [`Connection::abort`].
    pub fn abort(&mut self, handle: Handle) {
        if let Some(connection) = self.connection(handle) {
            connection.abort();
            self.drive(handle.index);
        }
    }

    /// Aborts the connection because its owner has waited for `waited`; see [`Connection::time_out`].
    pub fn time_out(&mut self, handle: Handle, waited: Duration) {
        if let Some(connection) = self.connection(handle) {
            connection.time_out(waited);
            self.drive(handle.index);
        }
    }

    /// Returns the oldest notice that was not returned yet.
    pub fn next_notice(&mut self) -> Option<(Handle, Notice)> {
        self.notices.pop_front()
    }

    /// Handles earlier completions and reads, and polls for new completions. Returns whether there was any work. If
    /// there was none, and no message has been read since ([`is_due`](Self::is_due)), the caller may wait on the
    /// fabric.
    pub fn step(&mut self) -> bool {
        let was_due = self.is_due();
        if was_due {
            self.drive_due();
        }
        let count = self.poll();
        if count > 0 && !self.starved.is_empty() {
            self.feed_starved();
            // The poll flushed only the requests that were posted before it. `feed_starved` may have posted more.
            self.fabric.flush();
        }
        was_due || count > 0
    }

    /// Returns whether the next step has work that does not depend on a completion. The peer may wait for that work, so
    /// the caller must run a step before it waits on the fabric.
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    fn drive_due(&mut self) {
        let mut indices = std::mem::take(&mut self.due);
        for index in indices.drain(..) {
            if let Some(entry) = &mut self.entries[index as usize]
                && std::mem::replace(&mut entry.is_due, false)
            {
                self.drive(index);
            }
        }
        // The vector is kept for its allocation. `self.due` is normally empty here, because driving a connection
        // schedules no other one.
        indices.append(&mut self.due);
        self.due = indices;
    }

    /// Drives each connection that could not post, once. Those that still cannot post queue up again.
    fn feed_starved(&mut self) {
        for _ in 0..self.starved.len() {
            let Some(index) = self.starved.pop_front() else { return };
            if let Some(entry) = &mut self.entries[index as usize] {
                entry.is_starved = false;
                self.drive(index);
            }
        }
    }

    /// Polls the fabric's events and handles them. Returns whether there were any. The owner calls this repeatedly
    /// while connecting, and every few milliseconds afterwards.
    pub fn housekeep(&mut self) -> bool {
        let mut worked = false;
        while let Some(event) = self.fabric.next_event() {
            worked = true;
            if let Event::Disconnected { .. } = event {
                self.poll_all();
            }
            let event = self.links.happened(&mut self.fabric, &event);
            self.link_changed(event);
        }
        for place in 0..self.links.len() {
            // The queue pair may be broken although no event has reported it yet.
            let link = &self.links[place];
            if !link.is_ready() && self.fabric.state(link.qp()) == QpState::Error {
                self.poll_all();
            }
            let event = self.links.check_down(&mut self.fabric, place);
            self.link_changed(event);
        }
        worked
    }

    /// Polls until no completion is left. Connections must see the completions of their operations before a reset makes
    /// those stale, or they would wait for them for ever.
    fn poll_all(&mut self) {
        while self.poll() > 0 {}
    }

    fn link_changed(&mut self, event: Option<LinkEvent>) {
        match event {
            Some(LinkEvent::Up(place)) => self.connected(place),
            Some(LinkEvent::Down(place)) => self.disconnected(place),
            None => {}
        }
    }

    fn connected(&mut self, place: usize) {
        let link = &mut self.links[place];
        let withheld = std::mem::take(&mut link.withheld);
        link.free.extend(withheld);
        self.drive_link(place);
    }

    /// Fails the connections of a queue pair that broke.
    fn disconnected(&mut self, place: usize) {
        for index in 0..self.entries.len() {
            if let Some(entry) = self.entries[index].as_mut().filter(|entry| entry.link as usize == place) {
                if self.config.channel.scheme == Scheme::Counted {
                    entry.connection.give_back_receives();
                }
                entry.connection.broken();
                self.drive(index as u32);
            }
        }
        self.sends -= self.links[place].sends;
        self.links[place].begin_anew();
        self.await_greetings(place);
        self.feed_starved();
    }

    fn drive_link(&mut self, place: usize) {
        for index in 0..self.entries.len() {
            if self.entries[index].as_ref().is_some_and(|entry| entry.link as usize == place) {
                self.drive(index as u32);
            }
        }
    }

    /// Returns the number of bytes that are registered for all peers.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.config.memory_bytes() * self.links.len() as u64
    }
}

/// Schedules the connection for the next step.
fn due(entry: &mut Entry, index: u32, due: &mut Vec<u32>) {
    if !std::mem::replace(&mut entry.is_due, true) {
        due.push(index);
    }
}

/// Checks that the configuration is within the limits of the fabric. Returns the number of sends that may be
/// outstanding on all queue pairs together.
fn check<F: Fabric>(fabric: &F, config: &EndpointConfig, peers: &[ProcessId]) -> Result<u32, EndpointError> {
    config.channel.check()?;
    let has = fabric.capabilities();
    let highest = peers.iter().fold(fabric.me().0, |highest, peer| highest.max(peer.0));
    let (fabric, scheme) = (has.name, config.channel.scheme);
    if scheme != Scheme::Counted && !has.tagged {
        return Err(ConfigError::NoTags { scheme: scheme.name(), fabric }.into());
    }
    let too_much = |what, asked, limit, remedy| {
        if asked <= limit { Ok(()) } else { Err(EndpointError::TooMuch { what, asked, limit, fabric, remedy }) }
    };
    let last = u64::from(config.first_purpose.0) + 2 * u64::from(highest) + 1;
    too_much("the last purpose", last, u64::from(u16::MAX), "configure a lower first purpose")?;
    let recvs = u64::from(config.recvs()) * u64::from(config.connections);
    let longest = u64::from(config.channel.piece_bytes.max(config.channel.eager_bytes + 8));
    too_much("bytes of one message", longest, has.max_message_bytes, "configure shorter pieces")?;
    let fewer = "configure fewer connections, or fewer lengths and pieces in flight";
    too_much("receives posted at a time", recvs, u64::from(has.max_recv_depth), fewer)?;
    too_much(
        "requests in a send queue",
        u64::from(config.send_depth),
        u64::from(has.max_send_depth),
        "configure fewer",
    )?;
    let (most, all) = (u64::from(has.max_completions), recvs * peers.len() as u64);
    let overrun = mutant!(config.channel.mutant, QueueOverrun);
    if !overrun {
        too_much("operations outstanding", all + 1, most, fewer)?;
    }
    Ok(if overrun { u32::MAX } else { (most - all).min(u64::from(u32::MAX)) as u32 })
}
