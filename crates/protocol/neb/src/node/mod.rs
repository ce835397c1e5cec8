//! The state machines on a fabric: regions, slots, queue pairs, flow control.
//!
//! Everything is driven by cursors: what is to be written to a peer or read from it follows from how far the stream is and
//! how far the peer is known to be. A queue pair that breaks and comes back goes on from there.

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

/// Why a node could not start.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NodeError {
    /// Sizes against the fault model.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Queue pairs.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fabric cannot do it.
    #[error("fabric {0} lacks {1}")]
    Lacks(&'static str, &'static str),
    /// The fabric moves less at a time than these sizes need.
    #[error("a ring of {needs} bytes is read at a time, the fabric takes {has}: lower `window` or `payload_bytes`")]
    Fabric {
        /// Bytes of a ring.
        needs: u64,
        /// The fabric's limit, bytes.
        has: u64,
    },
    /// Not one of the processes.
    #[error("{0} is none of the {1} processes of the broadcast")]
    Role(ProcessId, usize),
    /// Keys without signatures, or the other way round.
    #[error("values are {}signed, and this process has {} keys", if *.0 { "" } else { "not " }, if *.0 { "no" } else { "" })]
    Keys(bool),
}

/// Why a broadcast was not taken. Nothing was done.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BroadcastError {
    /// A window of broadcasts is not freed everywhere: step, then try again.
    #[error("the window is full: some process has not freed the slot yet")]
    Full,
    /// Too long.
    #[error("a payload of {bytes} bytes: at most {limit} are agreed on (`payload_bytes`)")]
    TooLong {
        /// What was given.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An agreed view change took this process out.
    #[error("this process was removed from the broadcast")]
    Removed,
}

/// What a node tells its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice<'a> {
    /// Deliver this.
    Deliver(ProcessId, Value<'a>),
    /// Two values for one index.
    Equivocation(&'a Evidence),
    /// An index came too late: the sender, or somebody who replays for it, was more than a window ahead.
    Skip(ProcessId, u64),
    /// A sender's sealed value breaks the protocol; nothing more of it is taken.
    Refused(ProcessId, Refused),
    /// An operator removed this process; its stream has ended here, as everywhere, before this index.
    Removed(ProcessId, u64),
}

/// Counters of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Own broadcasts.
    pub broadcasts: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Deliveries for which nothing was read.
    pub fast: u64,
    /// Indices skipped.
    pub skipped: u64,
    /// Broadcast WRITEs.
    pub broadcast_writes: u64,
    /// Copies of these that the network made.
    pub copies: u64,
    /// Times that a write by the set took longer than it is waited for.
    pub slow_sets: u64,
    /// Register WRITEs.
    pub register_writes: u64,
    /// READs of registers.
    pub reads: u64,
    /// Times that a register was read again because it was torn.
    pub reread: u64,
    /// Credits sent.
    pub credits: u64,
    /// Queue pairs that broke: suspicions, which change no quorum.
    pub suspicions: u64,
    /// Of these, refused accesses: a peer that denies its registers.
    pub denials: u64,
}

/// One process of the broadcast.
#[derive(Debug)]
pub struct Node<F: Fabric> {
    pub(crate) end: Endpoint<F>,
    authority: Option<Authority>,
    own: LocalStream,
    /// By sender; none for oneself.
    streams: Vec<Option<Stream>>,
    /// A record on its way in or out.
    scratch: Vec<u64>,
    counts: Counts,
    completions: [Completion; 32],
    /// Senders of whose streams something may be to do besides looking for the next broadcast.
    busy: crate::ProcessSet,
    removal: removal::Changes,
    /// The sets in which this process gets copies.
    sets: JoinedSets,
}

impl<F: Fabric> Node<F> {
    /// Registers the regions and begins to connect. `salt` is the cluster's; `authority` has the keys, where values are
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
            // A slot's: what is sealed and too long is told then, and not taken for torn.
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

    /// This process.
    #[must_use]
    pub fn me(&self) -> ProcessId {
        self.end.me
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.end.config
    }

    /// Counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The fabric.
    #[must_use]
    pub fn fabric(&self) -> &F {
        &self.end.fabric
    }

    /// The fabric, for waiting.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.end.fabric
    }

    /// Whether all queue pairs are ready, but those to processes that are fenced.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end.peers.iter().all(|peer| peer.is_ready() || peer.is_closed())
    }

    /// Whether the network makes the copies of what is broadcast now, for everybody who is connected and not fenced.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        let Some(fanout) = self.own.fanout.as_ref().filter(|fanout| fanout.is_usable()) else { return false };
        let mut others = self.end.peers.iter().filter(|peer| peer.peer() != self.end.me && !peer.is_closed());
        others.all(|peer| peer.is_ready() && fanout.reaches(peer.peer()))
    }

    /// How many others are connected.
    #[must_use]
    pub fn connected_others(&self) -> usize {
        self.end.peers.iter().filter(|peer| peer.is_ready() && peer.peer() != self.end.me).count()
    }

    /// How often the queue pair to a peer broke.
    #[must_use]
    pub fn suspicions(&self, peer: ProcessId) -> u64 {
        self.end.peers.get(peer).map_or(0, |peer| peer.connection_id())
    }

    /// The sender's side of this process.
    #[must_use]
    pub fn own_stream(&self) -> &crate::Broadcast {
        &self.own.stream
    }

    /// What a peer has freed of the own stream, whatever was broadcast: for liars.
    pub(crate) fn own_stream_freed(&self, peer: ProcessId) -> u64 {
        self.own.claimed[peer.index()]
    }

    /// What this process published for an index of a stream, if that was the last in its slot: for liars.
    pub(crate) fn published_record(&self, stream: ProcessId, index: u64) -> Option<&[u64]> {
        Some(self.streams[stream.index()].as_ref()?.records.get(self.end.layout.slot(index)))
    }

    /// Bytes registered.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.end.registered
    }

    /// Returns the position up to which a sender's stream has outcomes here; 0 for this process itself, and if there is
    /// no such process.
    #[must_use]
    pub fn head(&self, sender: ProcessId) -> u64 {
        self.streams.get(sender.index()).and_then(Option::as_ref).map_or(0, |stream| stream.replay.head())
    }

    /// Connections that came and went. Makes system calls on some fabrics: call it while connecting, when idle and every
    /// few milliseconds. Returns whether there was anything.
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
                // What broke is reset below, in the order of processes.
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

    /// Joins again where a set broke. Whether it was the own one: then something may be to write again.
    fn look_after_sets(&mut self) -> bool {
        self.sets.mend(&mut self.end.fabric, |sender| self.removal.is_fenced(sender));
        let broke = self.own.fanout.as_ref().is_some_and(|fanout| fanout.set.is_broken(&self.end.fabric));
        if broke {
            // Its completions first: they say what arrived.
            while self.poll_completions() {}
            self.own.mend(&mut self.end.fabric);
        }
        broke
    }

    /// Everything to a peer starts over with a connection, and when it ends. The end is a suspicion, not a crash: no quorum
    /// changes, and what was on its way is posted again on the next connection.
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

    /// Everything to this peer starts over from what is known to be there.
    fn rewind(&mut self, peer: ProcessId) {
        self.own.rewind(peer);
        self.busy = self.end.others;
        for stream in self.streams.iter_mut().flatten() {
            stream.rewind(peer);
        }
    }

    /// One round: takes what came, does what follows from it, tells what is due, writes and reads what is to be written and
    /// read. Returns whether there was anything to do.
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
                // What is complete is read at once; some fabrics complete at once.
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
