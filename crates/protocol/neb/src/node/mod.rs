//! Runs the state machines on a fabric: regions, slots, queue pairs and flow control.
//!
//! Cursors drive all transfers. The position of a stream and the known position of a peer determine what to write to
//! the peer or to read from it. After a queue pair has broken and reconnected, transfers continue from these positions.

mod ask;
mod endpoint;
mod fanout;
mod local_stream;
mod peer;
mod publish;
mod read;
mod records;
mod removal;
mod scan;
mod send_cursor;
mod stream;
#[cfg(test)]
mod tests;

pub use endpoint::Endpoint;
pub(crate) use endpoint::store;

use stentor_fabric::memory::WORD;
use stentor_fabric::{AccessError, Completion, ConnectError, Event, Fabric, ProcessId, RegisterError, Status};
use stentor_link::{JoinedSets, LinkEvent};
use thiserror::Error;

use self::local_stream::LocalStream;
use self::peer::{Done, Peer};
use self::stream::Stream;
use crate::value::{Refused, Value};
use crate::{Authority, Config, ConfigError, Evidence};

/// Reason why a node could not start.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The fabric refused to register memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The fabric refused to grant access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The fabric refused to create a queue pair.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fabric lacks a capability.
    #[error("fabric {0} lacks {1}")]
    Lacks(&'static str, &'static str),
    /// The fabric's longest message is shorter than these sizes need.
    #[error("one READ fetches a ring of {needs} bytes, the fabric permits {has}: lower `window` or `payload_bytes`")]
    Fabric {
        /// Size of a ring, in bytes.
        needs: u64,
        /// Limit of the fabric, in bytes.
        has: u64,
    },
    /// This process is not one of the processes of the broadcast.
    #[error("{0} is none of the {1} processes of the broadcast")]
    Role(ProcessId, usize),
    /// Keys are given without signatures, or signatures are required without keys.
    #[error("values are {}signed, and this process has {} keys", if *.0 { "" } else { "not " }, if *.0 { "no" } else { "" })]
    Keys(bool),
}

/// Reason why a broadcast was refused. The call had no effect.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BroadcastError {
    /// The slot of the next broadcast is still in use: a process that counts has not freed it, the earlier broadcast in
    /// it is not delivered here, or the NIC may still read it. Call `step`, then try again.
    #[error("the window is full: some process has not freed the slot yet")]
    Full,
    /// The payload is too long.
    #[error("a payload of {bytes} bytes: at most {limit} are agreed on (`payload_bytes`)")]
    TooLong {
        /// Length of the payload, in bytes.
        bytes: usize,
        /// Limit, in bytes.
        limit: usize,
    },
    /// An operator that is removing this process has asked it to leave.
    #[error("this process was removed from the broadcast")]
    Removed,
}

/// An event that a node reports to its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice<'a> {
    /// A value of this sender is delivered.
    Deliver(ProcessId, Value<'a>),
    /// Two values of one index were found.
    Equivocation(&'a Evidence),
    /// An index of this sender is skipped; see [`Outcome::Skip`](crate::Outcome::Skip).
    Skip(ProcessId, u64),
    /// A sender's sealed value violates the protocol. No further value of this sender is accepted.
    Refused(ProcessId, Refused),
    /// An operator removed the named process. Its stream ends before this index, at every process that remains.
    Removed(ProcessId, u64),
}

/// Counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of own broadcasts.
    pub broadcasts: u64,
    /// Number of deliveries, own broadcasts included.
    pub deliveries: u64,
    /// Number of deliveries of other processes' values that waited for no READ.
    pub fast: u64,
    /// Number of skipped indices.
    pub skipped: u64,
    /// Number of WRITEs of broadcasts. A fan-out write counts once.
    pub broadcast_writes: u64,
    /// Number of copies of broadcast WRITEs that the network made.
    pub copies: u64,
    /// Number of times that the fan-out set became slow ([`Config::set_rounds`]).
    pub slow_sets: u64,
    /// Number of WRITEs of registers.
    pub register_writes: u64,
    /// Number of READs of registers, and of floors after torn registers.
    pub reads: u64,
    /// Number of times that a host had to be read again because a register there was torn.
    pub reread: u64,
    /// Number of credits sent.
    pub credits: u64,
    /// Number of times that the link to a process went down. These are suspicions, which change no quorum.
    pub suspicions: u64,
    /// Number of requests that failed because a peer denied access to its memory.
    pub denials: u64,
}

/// One process of the broadcast.
#[derive(Debug)]
pub struct Node<F: Fabric> {
    pub(crate) end: Endpoint<F>,
    authority: Option<Authority>,
    own: LocalStream,
    /// Stream of each sender; `None` for this process.
    streams: Vec<Option<Stream>>,
    /// Buffer for a record that is read from a slot.
    scratch: Vec<u64>,
    counts: Counts,
    completions: [Completion; 32],
    /// Senders whose streams may need work besides polling for the next broadcast.
    busy: crate::ProcessSet,
    removal: removal::Changes,
    /// Fan-out sets of other senders, in which this process receives copies.
    sets: JoinedSets,
}

impl<F: Fabric> Node<F> {
    /// Registers the regions and begins to connect. `salt` is the cluster's; `authority` holds the keys if values are
    /// signed.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(fabric: F, config: Config, salt: u64, authority: Option<Authority>) -> Result<Self, NodeError> {
        if authority.is_some() != config.signed {
            return Err(NodeError::Keys(config.signed));
        }
        let mut end = Endpoint::new(fabric, config, salt)?;
        let me = end.me;
        let (fanout, sets) = fanout::join(&mut end.fabric, &config)?;
        let stream =
            |sender: ProcessId| (sender != me).then(|| Stream::new(&config, salt, me, sender, end.inline_bytes));
        Ok(Node {
            streams: config.everybody().iter().map(stream).collect(),
            own: LocalStream::new(&config, salt, me, &end.layout, end.inline_bytes, fanout),
            // The buffer is as long as a slot, so that a sealed value that is too long is reported instead of being
            // treated as torn.
            scratch: vec![0; end.layout.slot_bytes() as usize / WORD],
            busy: end.others,
            end,
            authority,
            counts: Counts::default(),
            completions: [Completion::BLANK; 32],
            removal: removal::Changes::new(&config, me),
            sets,
        })
    }

    /// Returns this process.
    #[must_use]
    pub fn me(&self) -> ProcessId {
        self.end.me
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.end.config
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the fabric.
    #[must_use]
    pub fn fabric(&self) -> &F {
        &self.end.fabric
    }

    /// Returns the fabric, to wait on it.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.end.fabric
    }

    /// Returns whether all queue pairs are ready, except those to fenced processes.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end.peers.iter().all(|peer| peer.is_ready() || peer.is_closed())
    }

    /// Returns whether this process's fan-out set now reaches all other processes that are not fenced.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        let Some(fanout) = self.own.fanout.as_ref().filter(|fanout| fanout.is_usable()) else { return false };
        let mut others = self.end.peers.iter().filter(|peer| peer.peer() != self.end.me && !peer.is_closed());
        others.all(|peer| peer.is_ready() && fanout.reaches(peer.peer()))
    }

    /// Returns the number of other processes that are connected.
    #[must_use]
    pub fn connected_others(&self) -> usize {
        self.end.peers.iter().filter(|peer| peer.is_ready() && peer.peer() != self.end.me).count()
    }

    /// Returns the number of times that the queue pair to a peer broke.
    #[must_use]
    pub fn suspicions(&self, peer: ProcessId) -> u64 {
        self.end.peers.get(peer).map_or(0, |peer| peer.connection_id())
    }

    /// Returns the stream that this process sends.
    #[must_use]
    pub fn own_stream(&self) -> &crate::Broadcast {
        &self.own.stream
    }

    /// Returns the index up to which a peer claims to have freed the local stream, without checks. Only liars use it.
    pub(crate) fn own_stream_freed(&self, peer: ProcessId) -> u64 {
        self.own.claimed[peer.index()]
    }

    /// Returns the record that this process published last in the slot of an index of a stream. Only liars use it.
    pub(crate) fn published_record(&self, stream: ProcessId, index: u64) -> Option<&[u64]> {
        Some(self.streams[stream.index()].as_ref()?.records.get(self.end.layout.slot(index)))
    }

    /// Returns the number of registered bytes.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.end.registered
    }

    /// Returns the position up to which a sender's stream has outcomes here. It is 0 for this process itself, and for
    /// an unknown process.
    #[must_use]
    pub fn head(&self, sender: ProcessId) -> u64 {
        self.streams.get(sender.index()).and_then(Option::as_ref).map_or(0, |stream| stream.replay.head())
    }

    /// Handles events of the fabric. On some fabrics this makes system calls, so call it while connecting, when idle,
    /// and every few milliseconds. Returns whether there was any event.
    pub fn housekeep(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.end.fabric.next_event() {
            any = true;
            if self.own.fanout.as_mut().is_some_and(|fanout| fanout.set.happened(&self.end.fabric, &event)) {
                continue;
            }
            if let Event::Revoked { region, peer } = event {
                self.revoked(region, peer);
            }
            if let Event::Disconnected { peer, .. } = event
                && self.end.peers.get(peer).is_some_and(|peer| !peer.is_closed())
            {
                // Broken queue pairs are reset below, in the order of processes.
                continue;
            }
            let event = self.end.peers.links.happened(&mut self.end.fabric, &event);
            self.link_changed(event);
        }
        for link in 0..self.end.peers.links.len() {
            if !self.end.peers.links[link].is_closed() {
                let event = self.end.peers.links.check(&mut self.end.fabric, link);
                self.link_changed(event);
            }
        }
        any |= self.look_after_sets();
        any
    }

    /// Joins broken sets again. Returns whether this process's own set was broken, so that indices may have to be
    /// written again.
    fn look_after_sets(&mut self) -> bool {
        self.sets.mend(&mut self.end.fabric, |sender| self.removal.is_fenced(sender));
        let broke = self.own.fanout.as_ref().is_some_and(|fanout| fanout.set.is_broken(&self.end.fabric));
        if broke {
            // The completions of the broken set must be processed first, because they show which writes have arrived.
            while self.poll_completions() {}
            self.own.mend(&mut self.end.fabric);
        }
        broke
    }

    /// Restarts sending to a peer when a connection begins or ends. The end of a connection is a suspicion, not a
    /// crash: no quorum changes, and everything that was in flight is posted again on the next connection.
    fn link_changed(&mut self, event: Option<LinkEvent>) {
        let Some(LinkEvent::Up(link) | LinkEvent::Down(link)) = event else { return };
        let peer = self.end.peers.links[link].peer();
        self.rewind(peer);
        if let Some(LinkEvent::Down(_)) = event {
            self.end.peers.links[link].forget();
            self.counts.suspicions += 1;
            for stream in self.streams.iter_mut().flatten() {
                stream.replay.suspect(peer);
                stream.patience.ends();
            }
        }
    }

    /// Restarts sending to this peer from the first index that is not known to be written there.
    fn rewind(&mut self, peer: ProcessId) {
        self.own.rewind(peer);
        self.busy = self.end.others;
        for stream in self.streams.iter_mut().flatten() {
            stream.rewind(peer);
        }
    }

    /// Runs one round: processes arrivals and completions, reports the outcomes that are due, and posts writes and
    /// reads. Returns whether there was any work.
    pub fn step<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        let mut worked = self.poll_completions();
        worked |= self.poll_credits();
        if self.own.tend() {
            self.counts.slow_sets += 1;
            worked = true;
        }
        worked |= self.poll_bcast_bufs(notify);
        if self.post_registers() {
            worked = true;
            if !self.end.config.fast_path {
                // With some fabrics requests complete at once; complete registers are then read without delay.
                self.poll_completions();
            }
        }
        worked |= self.poll_pushed(notify);
        worked |= self.poll_read_cq(notify);
        worked |= self.deliver(notify);
        worked |= self.tell_removed(notify);
        worked |= self.post_broadcasts();
        if self.post_reads() {
            worked = true;
            if self.poll_completions() && self.poll_read_cq(notify) {
                self.deliver(notify);
            }
        }
        self.post_credits(!worked);
        self.end.fabric.flush();
        for sender in self.busy.iter() {
            if self.streams[sender.index()].as_ref().is_none_or(Stream::is_at_rest) {
                self.busy.remove(sender);
            }
        }
        worked
    }

    fn poll_completions(&mut self) -> bool {
        let count = self.end.fabric.poll(&mut self.completions);
        let mut fanned = false;
        for completion in &self.completions[..count] {
            if self.own.fanout.as_mut().is_some_and(|fanout| fanout.completed(completion)) {
                fanned = true;
                continue;
            }
            let Some((peer, number)) = self.end.peers.links.find_mut(completion) else { continue };
            match (completion.status, number) {
                (Status::Success, Some(number)) => peer.completed(number),
                (Status::RemoteAccess, _) => self.counts.denials += 1,
                _ => {}
            }
        }
        if count == 0 {
            return false;
        }
        if fanned {
            self.own.fanned();
        }
        for link in 0..self.end.peers.links.len() {
            let peer = self.end.peers.links[link].peer();
            while let Some(done) = Peer::next_done(&mut self.end.peers.links[link]) {
                self.done(peer, done);
            }
        }
        true
    }

    fn done(&mut self, peer: ProcessId, done: Done) {
        match done {
            Done::Broadcast { upto } => self.own.linked(peer, upto),
            Done::Register { stream, upto } => {
                if let Some(stream) = &mut self.streams[stream.index()] {
                    stream.replay.published(peer, upto);
                }
            }
            Done::Floor { stream, floor, proof } => {
                if let Some(stream) = &mut self.streams[stream.index()] {
                    let at = &mut stream.at[peer.index()];
                    (at.floor_done, at.proof_done) = (floor, proof);
                }
            }
            Done::Read { stream, serial } => {
                if let Some(stream) = &mut self.streams[stream.index()] {
                    stream.at[peer.index()].ask.arrived(serial);
                }
            }
            Done::Credit => {
                if let Some(stream) = &mut self.streams[peer.index()] {
                    stream.credit_flying = false;
                }
            }
        }
    }
}
