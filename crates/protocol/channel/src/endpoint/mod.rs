//! Connections on a fabric: one queue pair with each peer, many connections on it.

mod body;
mod complete;
mod peer;
mod post;

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::memory::WORD;
use stentor_fabric::{
    AccessError, Completion, ConnectError, Event, Fabric, ProcessId, Purpose, RegionId, RegisterError, Service, Word,
};
use stentor_link::{LinkEvent, Links, purpose, service};
use thiserror::Error;

use crate::config::CONTROLS;
use crate::layout::{Layout, load};
use crate::{Config, ConfigError, Connection, Incoming, MAX_CONNECTIONS, Notice, Scheme, WriteError, mutant};
use body::{Body, Rest};
use peer::Peer;

/// How many completions are polled at a time.
const BATCH: usize = 64;

/// How a process meets its peers; the same at all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Parameters of every connection.
    pub channel: Config,
    /// Connections with one peer at a time.
    pub connections: u16,
    /// Requests in the send queue of one queue pair.
    pub send_depth: u32,
    /// The queue pairs' service.
    pub service: Service,
    /// The first of as many purposes as there are processes, twice.
    pub first_purpose: Purpose,
}

impl EndpointConfig {
    /// For connections with these parameters, a few at a time.
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

    /// Receives of one connection.
    fn recvs(&self) -> u32 {
        self.channel.lengths + self.channel.pieces + CONTROLS + 1
    }

    /// Bytes that are registered for each peer.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        2 * Layout::new(&self.channel).area_bytes() * u64::from(self.connections)
    }
}

/// Why an endpoint was not made.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum EndpointError {
    /// Impossible parameters.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The fabric cannot do what the parameters ask for.
    #[error("{what}: {asked} asked for, `{fabric}` has {limit}; {remedy}")]
    TooMuch {
        /// What there is too little of.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// What there is.
        limit: u64,
        /// The fabric.
        fabric: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Memory was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Access was refused.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A queue pair was refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Why a connection was not opened.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    /// Not one of the peers that the endpoint was made for.
    #[error("{0} is not one of the peers")]
    UnknownPeer(ProcessId),
    /// No such number.
    #[error("connection {number}: numbers are below {limit}")]
    Number {
        /// What was asked for.
        number: u32,
        /// The limit.
        limit: u32,
    },
    /// It is open already, or not closed yet.
    #[error("connection {number} with {peer} is open")]
    InUse {
        /// Which.
        number: u32,
        /// With whom.
        peer: ProcessId,
    },
    /// It failed, and something of it may still be under way.
    #[error(
        "connection {number} with {peer} failed, and its number is free when the link has been reset; take another"
    )]
    Spent {
        /// Which.
        number: u32,
        /// With whom.
        peer: ProcessId,
    },
    /// As many as there may be.
    #[error("{limit} connections with {peer} are open or closing; close one, or ask for more of them")]
    TooMany {
        /// With whom.
        peer: ProcessId,
        /// How many there may be.
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
    /// The rest of a message that its writer has detached.
    rest: Option<Rest>,
    link: u32,
    area: u16,
    generation: u32,
    /// It is among those that wait for a place in a send queue.
    is_starved: bool,
    /// It is among those that are driven in the next step.
    is_due: bool,
}

/// One process's end of all its connections, on any fabric.
pub struct Endpoint<F: Fabric> {
    fabric: F,
    config: EndpointConfig,
    layout: Layout,
    links: Links<Peer>,
    entries: Vec<Option<Entry>>,
    generations: u32,
    notices: VecDeque<(Handle, Notice)>,
    /// Connections that may have something to say and found no place in a send queue.
    starved: VecDeque<u32>,
    /// Connections of which something completed or was read, and what follows is not done yet: receives to post again, credits
    /// to give. The owner, who may have an answer to send, goes first.
    due: Vec<u32>,
    /// What is polled into.
    completions: Box<[Completion]>,
    /// Requests that may be outstanding on all queue pairs together.
    most_sends: u32,
    sends: u32,
}

impl<F: Fabric> Endpoint<F> {
    /// Registers memory for each peer and connects to all of them.
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

    /// Where places are written, a peer may greet before this end is open, or open again: a receive for each number.
    fn await_greetings(&mut self, place: usize) {
        if self.config.channel.scheme == Scheme::Counted {
            self.links[place].recvs_needed += u32::from(self.config.connections);
            self.top_up(place);
        }
    }

    /// The fabric.
    pub fn fabric(&self) -> &F {
        &self.fabric
    }

    /// The fabric, to wait on.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// Opens this end of a connection. The peer opens its own under the same number; messages may be handed over at once.
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

    /// Begins to write a message of so many bytes; returns its number on the connection.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin(&mut self, handle: Handle, bytes: u64) -> Result<u64, WriteError> {
        self.connection(handle).ok_or(WriteError::Closed)?.begin(bytes)
    }

    /// Hands over as much of the message that was begun as may be sent now. `message` is all of it, every time. Returns
    /// whether all of it is handed over.
    ///
    /// # Errors
    /// [`WriteError::OtherLength`] if the message was begun with another length.
    pub fn hand_over(&mut self, handle: Handle, message: &[u8]) -> Result<bool, WriteError> {
        self.hand_over_all(handle, Body::Bytes(message))
    }

    /// The same for a message in registered memory: its pieces are sent from where they are, nothing is copied. `region` is
    /// one that was registered with [`fabric_mut`](Self::fabric_mut), for this process; the message, as long as it was begun,
    /// is at `offset` in it. It must not change before [`Notice::Written`] of its number. Where places
    /// are written ([`Scheme::Counted`]) the bytes up to the next multiple of 8 go along.
    ///
    /// A message that goes with its length, or is short, is copied in any case.
    ///
    /// # Errors
    /// [`WriteError::OtherLength`] if the message was begun with another length, [`WriteError::OutOfRegion`] if `offset` is
    /// no multiple of 8 or the region ends before the next multiple of 8 behind the message.
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

    /// Lets go of the message that was begun and is not handed over wholly, whose writer will not call again. If nothing of
    /// it was sent it is taken back, as if it had never begun. Otherwise the bytes that are left are copied, and the endpoint
    /// sends them from the copy by itself, before anything that is begun later. Returns whether the message is sent.
    ///
    /// The copy is the only one that an endpoint ever makes in memory of its own. It takes as long as copying the bytes that
    /// are left, and as much memory until they are sent: at most one message per connection.
    ///
    /// # Errors
    /// [`WriteError::OtherLength`] if the message was begun with another length.
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

    /// Whether the rest of a detached message is not sent yet: until it is, [`begin`](Self::begin) answers
    /// [`WriteError::Busy`].
    #[must_use]
    pub fn is_detached(&self, handle: Handle) -> bool {
        self.entry(handle).is_some_and(|entry| entry.rest.is_some())
    }

    /// How much of the message that is being written is not handed over yet.
    #[must_use]
    pub fn left(&self, handle: Handle) -> Option<u64> {
        self.entry(handle)?.connection.left()
    }

    /// The message that is to be read next, once its length has arrived.
    #[must_use]
    pub fn incoming(&self, handle: Handle) -> Option<Incoming> {
        self.entry(handle)?.connection.incoming()
    }

    /// Appends what has arrived of the message that is being read. Whether the message is whole now; the next call begins
    /// with the next one.
    pub fn read(&mut self, handle: Handle, message: &mut Vec<u8>) -> bool {
        self.read_in_place(handle, |memory, bytes| load(memory, 0, bytes, message))
    }

    /// The same for who needs no copy: `take` sees each part that has arrived where the peer or its NIC has put it, as words
    /// of which so many bytes belong to the message. It is given back when `take` returns.
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
        // The peer has sent what it must not, or that was the last of all.
        if !entry.connection.is_open() {
            self.drive(handle.index);
        }
        whole
    }

    /// Whether the peer has finished and everything was read.
    #[must_use]
    pub fn has_ended(&self, handle: Handle) -> bool {
        self.entry(handle).is_none_or(|entry| entry.connection.has_ended())
    }

    /// Returns whether both ends have greeted, and what this one has sent so far has been carried. An end that is not driven before that
    /// keeps the other one from opening. False for a connection that is over.
    #[must_use]
    pub fn has_met(&self, handle: Handle) -> bool {
        self.entry(handle).is_some_and(|entry| entry.connection.has_met())
    }

    /// Whether the connection is open, closing or failing: not yet over.
    #[must_use]
    pub fn is_alive(&self, handle: Handle) -> bool {
        self.entry(handle).is_some()
    }

    /// Nothing more will be written; see [`Connection::finish`]. The rest of a detached message is still sent.
    ///
    /// # Errors
    /// As there.
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

    /// Nothing more will be written or read; see [`Connection::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&mut self, handle: Handle) -> Result<(), WriteError> {
        self.finish(handle)?;
        if let Some(connection) = self.connection(handle) {
            connection.discard();
            self.drive(handle.index);
        }
        Ok(())
    }

    /// Gives the connection up at once; see [`Connection::abort`].
    pub fn abort(&mut self, handle: Handle) {
        if let Some(connection) = self.connection(handle) {
            connection.abort();
            self.drive(handle.index);
        }
    }

    /// Gives the connection up because its owner has waited for so long; see [`Connection::time_out`].
    pub fn time_out(&mut self, handle: Handle, waited: Duration) {
        if let Some(connection) = self.connection(handle) {
            connection.time_out(waited);
            self.drive(handle.index);
        }
    }

    /// What there is to tell next.
    pub fn next_notice(&mut self) -> Option<(Handle, Notice)> {
        self.notices.pop_front()
    }

    /// Does what follows from earlier completions and from what was read, and takes new completions. Whether there was anything:
    /// if not, and nothing was read since ([`is_due`](Self::is_due)), nothing is left to do, and one may wait on the fabric.
    pub fn step(&mut self) -> bool {
        let was_due = self.is_due();
        if was_due {
            self.drive_due();
        }
        let count = self.poll();
        if count > 0 && !self.starved.is_empty() {
            self.feed_starved();
            // What was posted before was flushed by the poll.
            self.fabric.flush();
        }
        was_due || count > 0
    }

    /// Whether the next step has something to do whatever comes: the peer may wait for it, so who would wait on the fabric takes
    /// a step first.
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
        // Its room is kept. Driving completes operations only of receives that are given back at once, of its own connection.
        indices.append(&mut self.due);
        self.due = indices;
    }

    /// Places are free again: first for those who found none. Each has its turn.
    fn feed_starved(&mut self) {
        for _ in 0..self.starved.len() {
            let Some(index) = self.starved.pop_front() else { return };
            if let Some(entry) = &mut self.entries[index as usize] {
                entry.is_starved = false;
                self.drive(index);
            }
        }
    }

    /// Takes events of the fabric and does what follows: call it while connecting, and every few milliseconds afterwards.
    /// Whether there were any.
    pub fn housekeep(&mut self) -> bool {
        let mut worked = false;
        while let Some(event) = self.fabric.next_event() {
            worked = true;
            if let Event::Disconnected { .. } = event {
                // Connections get back all that they have lent, before what completes is stale.
                while self.poll() > 0 {}
            }
            let event = self.links.happened(&mut self.fabric, &event);
            self.link_changed(event);
        }
        for place in 0..self.links.len() {
            let event = self.links.check_down(&mut self.fabric, place);
            self.link_changed(event);
        }
        worked
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

    /// A queue pair broke, and was reset: its connections fail.
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

    /// Bytes that are registered for all peers.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.config.memory_bytes() * self.links.len() as u64
    }
}

/// The connection is driven in the next step.
fn due(entry: &mut Entry, index: u32, due: &mut Vec<u32>) {
    if !std::mem::replace(&mut entry.is_due, true) {
        due.push(index);
    }
}

/// Whether the fabric can do it; returns how many sends may be outstanding.
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
    too_much("the last purpose", last, u64::from(u16::MAX), "begin with a lower one")?;
    let recvs = u64::from(config.recvs()) * u64::from(config.connections);
    let longest = u64::from(config.channel.piece_bytes.max(config.channel.eager_bytes + 8));
    too_much("bytes of one message", longest, has.max_message_bytes, "ask for shorter pieces")?;
    let fewer = "ask for fewer connections, or for fewer lengths and pieces in flight";
    too_much("receives posted at a time", recvs, u64::from(has.max_recv_depth), fewer)?;
    too_much("requests in a send queue", u64::from(config.send_depth), u64::from(has.max_send_depth), "ask for fewer")?;
    let (most, all) = (u64::from(has.max_completions), recvs * peers.len() as u64);
    let overrun = mutant!(config.channel.mutant, QueueOverrun);
    if !overrun {
        too_much("operations outstanding", all + 1, most, fewer)?;
    }
    Ok(if overrun { u32::MAX } else { (most - all).min(u64::from(u32::MAX)) as u32 })
}
