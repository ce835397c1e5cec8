//! A Byzantine process on any fabric, for simulations, demonstrations and tests.
//!
//! It runs a [`Node`] like a correct process, and additionally performs the violations of its [`Lies`]. The caller
//! supplies its random choices, so a run with it can be replayed.

use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::seal::{HEADER_WORDS, Seal, record_words};
use stentor_fabric::{Fabric, ProcessId, Purpose, RemoteSpan, Source, Span};
use stentor_link::purpose::{NEB_BROADCAST, neb_registers};
use zerocopy::IntoBytes;

use crate::layout::{broadcast_seal, register_seal};
use crate::node::store;
use crate::value;
use crate::{Authority, Config, Lies, Mode, Node, NodeError, Notice, Told};

/// A process that violates the protocol.
#[derive(Debug)]
pub struct Liar<F: Fabric> {
    node: Node<F>,
    lies: Lies,
    authority: Option<Authority>,
    seal: Seal,
    /// Next index to send to each peer.
    next: Vec<u64>,
    /// Number of indices to send: the liar's stream consists of the indices below it.
    until: u64,
    /// Processes that mostly get the second value.
    other_side: crate::ProcessSet,
    /// The second half of a slot that was written in part: target, offset and words.
    half: Option<(ProcessId, u64, Vec<u64>)>,
    /// One in `every` indices has two values, a wrong index or a wrong length.
    every: u64,
    /// Number of sends, one per index and peer, that carried the second value of the index.
    equivocated: u64,
    /// `true` if the last round of this process did any work besides violations.
    worked: bool,
    told: Told,
}

impl<F: Fabric> Liar<F> {
    /// Creates a liar that sends `until` indices. The second value goes mostly to `other_side`.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(
        fabric: F,
        config: Config,
        salt: u64,
        authority: Option<Authority>,
        lies: Lies,
        until: u64,
        other_side: crate::ProcessSet,
    ) -> Result<Self, NodeError> {
        let node = Node::new(fabric, config, salt, authority.clone())?;
        let seal = broadcast_seal(&config, node.me(), salt);
        let next = vec![0; config.processes];
        Ok(Liar {
            node,
            lies,
            authority,
            seal,
            next,
            until,
            other_side,
            half: None,
            every: 1,
            equivocated: 0,
            worked: false,
            told: Told::default(),
        })
    }

    /// Changes the liar so that only every `n`-th index has two values, a wrong index or a wrong length.
    #[must_use]
    pub fn equivocating_every(self, n: u64) -> Self {
        Liar { every: n.max(1), ..self }
    }

    /// Returns the node that the liar runs like a correct process.
    #[must_use]
    pub fn node(&self) -> &Node<F> {
        &self.node
    }

    /// Returns the node that the liar runs like a correct process, to wait on its fabric.
    pub fn node_mut(&mut self) -> &mut Node<F> {
        &mut self.node
    }

    /// Returns whether the last round did any work that a correct process would also have done. If so, the caller must
    /// run another round.
    #[must_use]
    pub fn worked(&self) -> bool {
        self.worked
    }

    /// Returns the number of sends, one per index and peer, that carried the second value of the index.
    #[must_use]
    pub fn equivocated(&self) -> u64 {
        self.equivocated
    }

    /// Returns the number of violations of each kind.
    #[must_use]
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// Counts the violation if `told` is `true`, which means that it was performed. Returns `told`.
    fn lied(&mut self, name: &str, told: bool) -> bool {
        if told {
            self.told.once(name);
        }
        told
    }

    /// Returns whether every index was sent to each peer, or omitted there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let peers = self.node.config().everybody().without(self.node.me());
        peers.iter().all(|peer| self.next[peer.index()] >= self.until)
    }

    /// Runs one round; `chance` supplies random numbers. Returns whether there was any work.
    pub fn step<N: FnMut(Notice<'_>)>(&mut self, mut chance: impl FnMut() -> u64, notify: &mut N) -> bool {
        let mut worked = self.node.housekeep();
        if self.lies.silent {
            self.told.once("silent");
        } else {
            worked |= self.node.step(notify);
        }
        self.worked = worked;
        for _ in 0..2 {
            worked |= self.lie(&mut chance);
        }
        self.node.end.fabric.flush();
        worked
    }

    fn lie(&mut self, chance: &mut impl FnMut() -> u64) -> bool {
        let config = *self.node.config();
        let peer = ProcessId((chance() % config.processes as u64) as u16);
        let lies = self.lies;
        let (name, told) = match chance() % 16 {
            0 if lies.kill && chance().is_multiple_of(8) => ("kill", self.kill(peer)),
            1 if lies.rewrite => {
                let last = self.next[peer.index()].saturating_sub(1);
                ("rewrite", self.send(peer, last, chance() & 1))
            }
            2 if lies.old_laps => {
                let older = 1 + u64::from(config.window);
                ("old-laps", self.send(peer, self.next[peer.index()].saturating_sub(older), chance() & 1))
            }
            3 if lies.half => ("half", self.send_half(peer, chance())),
            4..=6 if lies.own_host => ("own-host", self.forge_host(self.node.me(), chance)),
            7..=8 if lies.host => ("host", self.forge_host(peer, chance)),
            9..=10 if lies.garbage => ("garbage", self.forge_register(peer, chance)),
            11..=12 if lies.torn => ("torn", self.tear_registers(peer, chance)),
            13..=14 if lies.later_laps => ("later-laps", self.age_registers(peer, chance)),
            _ => return self.send_next(peer, chance()),
        };
        self.lied(name, told);
        // The liar could forge its local memory for ever, so that does not count as work.
        told && !matches!(name, "own-host" | "host")
    }

    /// Sends the next index to a peer, with one of two values. Returns whether anything was sent or omitted.
    fn send_next(&mut self, peer: ProcessId, chance: u64) -> bool {
        let index = self.next[peer.index()];
        let window = u64::from(self.node.config().window);
        let ahead = if self.lies.overrun && chance.is_multiple_of(4) { window } else { 0 };
        let freed = self.node.own_stream_freed(peer);
        if peer == self.node.me() || index >= self.until || index >= freed + window + ahead {
            return false;
        }
        let due = self.is_due(index);
        if self.lies.gap && due && (chance >> 16).is_multiple_of(2) {
            self.next[peer.index()] += 1;
            return self.lied("gap", true);
        }
        let other = self.lies.two_values && due && (self.other_side.contains(peer) != (chance >> 8).is_multiple_of(5));
        if !self.send(peer, index, u64::from(other)) {
            return false;
        }
        self.equivocated += u64::from(other);
        self.lied("two-values", other);
        self.lied("gap", self.lies.gap && due);
        self.lied("too-long", self.lies.too_long && due);
        self.lied("overrun", index >= freed + window);
        self.next[peer.index()] += 1;
        true
    }

    fn is_due(&self, index: u64) -> bool {
        (index + 1).is_multiple_of(self.every)
    }

    /// Returns the sealed record of one of the values for an index.
    fn record(&self, index: u64, variant: u64) -> Vec<u64> {
        let layout = self.node.end.layout;
        let (limit, due) = (self.node.config().payload_bytes, self.is_due(index));
        let payload = [self.node.me().0 as u8, index as u8, variant as u8, 0xbb, 1, 2, 3, 4];
        let too_long = vec![0xbb; limit + 1];
        let payload: &[u8] = if self.lies.too_long && due { &too_long } else { &payload[..payload.len().min(limit)] };
        let said = index + u64::from(self.lies.gap && due);
        // One byte more than agreed needs at most one word more.
        let mut record = vec![0; layout.record_words() + 1];
        let bytes = value::encode(said, 7_000 + index, payload, self.authority.as_ref(), &mut record[HEADER_WORDS..]);
        self.seal.close(layout.lap(index), bytes, &mut record);
        record.truncate(record_words(bytes));
        record
    }

    fn send(&mut self, peer: ProcessId, index: u64, variant: u64) -> bool {
        let record = self.record(index, variant);
        let offset = self.node.end.layout.ring_offset(index);
        self.write(peer, NEB_BROADCAST, offset, &record)
    }

    fn send_half(&mut self, peer: ProcessId, chance: u64) -> bool {
        if let Some((peer, offset, words)) = self.half.take() {
            return self.write(peer, NEB_BROADCAST, offset, &words);
        }
        let index = self.next[peer.index()];
        if index >= self.until || index >= self.node.own_stream_freed(peer) + u64::from(self.node.config().window) {
            return false;
        }
        let record = self.record(index, chance & 1);
        let offset = self.node.end.layout.ring_offset(index);
        let cut = record.len() / 2;
        let rest = record[cut..].to_vec();
        self.half = Some((peer, offset + (cut * WORD) as u64, rest));
        self.write(peer, NEB_BROADCAST, offset, &record[..cut])
    }

    fn write(&mut self, peer: ProcessId, purpose: Purpose, offset: u64, words: &[u64]) -> bool {
        let end = &mut self.node.end;
        let Some(link) = end.peers.get_mut(peer) else { return false };
        let bytes = words.len() * WORD;
        let inline = bytes <= end.fabric.capabilities().inline_bytes as usize;
        if !link.has_room(8) || !(inline || purpose == NEB_BROADCAST) {
            return false;
        }
        let Some(region) = link.resolve(&mut end.fabric, purpose) else { return false };
        let source = if inline {
            Source::Inline(words.as_bytes())
        } else {
            // The liar's node broadcasts nothing, so that slot is free. A record that was posted from the slot before
            // and is still in flight changes, too.
            store(end.fabric.memory(end.staging), offset, words);
            Source::Region(Span { region: end.staging, offset, bytes: bytes as u32 })
        };
        link.write(&mut end.fabric, source, RemoteSpan { region, offset }, None)
    }

    /// Writes beyond the end of the liar's region at a peer, which must break the queue pair. A fabric that permits the
    /// write violates its contract. Returns whether the WRITE was posted.
    fn kill(&mut self, peer: ProcessId) -> bool {
        peer != self.node.me() && self.write(peer, NEB_BROADCAST, self.node.end.layout.broadcast_bytes(), &[7; 8])
    }

    /// Erases one process's registers of a stream at the liar's host, where other processes read them. Returns `false`
    /// in mode `all`, in which no host keeps registers of others.
    fn forge_host(&mut self, stream: ProcessId, chance: &mut impl FnMut() -> u64) -> bool {
        let end = &self.node.end;
        if end.config.mode == Mode::All {
            return false;
        }
        let writer = ProcessId((chance() % end.config.processes as u64) as u16);
        let words = end.register_words(writer);
        for index in 0..u64::from(end.config.window) {
            store(words, end.layout.register_offset(stream, index), &[0; LINE / WORD]);
        }
        true
    }

    /// Writes another value into the liar's register for an index that other processes read now, at one host. If values
    /// are signed, it sometimes overwrites a proof instead. Returns whether anything was written.
    fn forge_register(&mut self, host: ProcessId, chance: &mut impl FnMut() -> u64) -> bool {
        let config = *self.node.config();
        let me = self.node.me();
        let stream = ProcessId((chance() % config.processes as u64) as u16);
        let window = u64::from(config.window);
        let index = (self.node.head(stream) + chance() % (window + 1)).saturating_sub(1);
        let layout = self.node.end.layout;
        let mut record = vec![0; layout.record_words()];
        let ahead = if chance().is_multiple_of(4) { window } else { 0 };
        let payload = chance().to_le_bytes();
        let payload = &payload[..payload.len().min(config.payload_bytes)];
        let bytes = value::encode(index + ahead, 1, payload, self.authority.as_ref(), &mut record[HEADER_WORDS..]);
        let seal = register_seal(&config, me, stream, self.node.end.salt);
        seal.close(layout.lap(index + ahead), bytes, &mut record);
        if chance().is_multiple_of(3) {
            record[0] ^= 1;
        }
        record.truncate(record_words(bytes));
        let offset = layout.register_offset(stream, index);
        if config.mode == Mode::All {
            store(self.node.end.register_words(me), offset, &record);
            return true;
        }
        if config.signed && chance().is_multiple_of(4) {
            // Writes the record over one of the proofs that registers may be reused.
            let offset = layout.proof_offset(stream, chance() & 1);
            return self.write(host, neb_registers(me), offset, &record);
        }
        self.write(host, neb_registers(me), offset, &record)
    }

    /// Tears those registers of a stream that other processes read now, at one host. If values are signed, also forges
    /// the proof that these registers may be reused: it writes a value there that the sender has not signed.
    fn tear_registers(&mut self, host: ProcessId, chance: &mut impl FnMut() -> u64) -> bool {
        let (config, me, layout) = (*self.node.config(), self.node.me(), self.node.end.layout);
        if config.mode == Mode::All {
            return false;
        }
        let stream = ProcessId((chance() % config.processes as u64) as u16);
        let (head, window) = (self.node.head(stream).saturating_sub(1), u64::from(config.window));
        let seal = register_seal(&config, me, stream, self.node.end.salt);
        let record = |index: u64, authority: Option<&Authority>| {
            let mut record = vec![0; layout.record_words()];
            let bytes = value::encode(index, 1, &[], authority, &mut record[HEADER_WORDS..]);
            seal.close(layout.lap(index), bytes, &mut record);
            record.truncate(record_words(bytes));
            record
        };
        if config.signed {
            let proof = record(head + 2 * window, self.authority.as_ref());
            self.write(host, neb_registers(me), layout.proof_offset(stream, chance() & 1), &proof);
        }
        let mut told = false;
        for index in head..=head + window {
            let mut torn = record(index, self.authority.as_ref());
            torn[0] ^= 1;
            told |= self.write(host, neb_registers(me), layout.register_offset(stream, index), &torn);
        }
        told
    }

    /// Seals the liar's registers of a stream again at one host, with the number of the next lap, as if the slots had
    /// been reused.
    fn age_registers(&mut self, host: ProcessId, chance: &mut impl FnMut() -> u64) -> bool {
        let (config, me, layout) = (*self.node.config(), self.node.me(), self.node.end.layout);
        let stream = ProcessId((chance() % config.processes as u64) as u16);
        if config.mode == Mode::All || stream == me {
            return false;
        }
        let seal = register_seal(&config, me, stream, self.node.end.salt);
        let mut told = false;
        for slot in 0..u64::from(config.window) {
            let Some(record) = self.node.published_record(stream, slot) else { continue };
            let mut record = record.to_vec();
            let bytes = (record[2] >> 32) as usize;
            if bytes == 0 {
                continue;
            }
            seal.close(record[1] + 1, bytes, &mut record);
            told |= self.write(host, neb_registers(me), layout.register_offset(stream, slot), &record);
        }
        told
    }
}
