//! Writes own registers to the hosts, floors before slots are reused, and credits.

use stentor_fabric::{Fabric, ProcessId, RegionId, RemoteRegion, RemoteSpan, Source, Span};
use stentor_link::purpose::{NEB_CONTROL, neb_registers};
use zerocopy::IntoBytes;

use super::Node;
use super::endpoint::Endpoint;
use super::peer::{Done, Peer};
use super::records::RUN_RECORDS;
use super::stream::Stream;
use crate::layout::PROOFS;
use crate::{Layout, Mode};

impl<F: Fabric> Node<F> {
    /// Writes registers to every host that keeps them (mode `quorum`). Returns whether any was written.
    pub(super) fn post_registers(&mut self) -> bool {
        let Node { end, streams, counts, busy, .. } = self;
        if end.config.mode == Mode::All {
            return false;
        }
        let mut worked = false;
        for sender in busy.iter() {
            let Some(stream) = &mut streams[sender.index()] else { continue };
            let next = stream.replay.next();
            for host in stream.replay.hosts().iter() {
                if stream.at[host.index()].posted == next {
                    continue;
                }
                let Some(writer) = RegisterWriter::new(end, host) else { continue };
                let posted = writer.write(stream);
                counts.register_writes += posted;
                worked |= posted > 0;
            }
        }
        worked
    }

    /// Sends credits to senders, when a quarter of a window was freed since the last credit or when there is no other
    /// work.
    pub(super) fn post_credits(&mut self, idle: bool) {
        let Node { end, streams, counts, busy, .. } = self;
        for sender in busy.iter() {
            let Some(stream) = &mut streams[sender.index()] else { continue };
            let ordered = end.fabric.capabilities().ordered_writes;
            let head = stream.replay.head();
            let much = (head - stream.credited.min(head)) * 4 >= u64::from(end.config.window);
            if head <= stream.credited || !(idle || much) || (stream.credit_flying && !ordered) {
                continue;
            }
            let Some(peer) = end.peers.get_mut(stream.replay.sender()) else { continue };
            if !peer.can_post() {
                continue;
            }
            let Some(region) = peer.resolve(&mut end.fabric, NEB_CONTROL) else { continue };
            let mut record = [0_u64; 8];
            let sealed = stream.credit.seal(&[head], &mut record);
            let source = Source::Inline(sealed.as_bytes());
            let done = (!ordered).then_some(Done::Credit);
            if peer.write(&mut end.fabric, source, RemoteSpan { region, offset: 0 }, done) {
                counts.credits += 1;
                stream.credited = head;
                stream.credit_flying = !ordered;
            }
        }
    }
}

/// A writer of this process's registers at one host.
struct RegisterWriter<'a, F: Fabric> {
    fabric: &'a mut F,
    peer: &'a mut Peer,
    layout: &'a Layout,
    region: RemoteRegion,
    staging: RegionId,
    host: ProcessId,
    window: u64,
    signed: bool,
    ordered: bool,
}

impl<'a, F: Fabric> RegisterWriter<'a, F> {
    /// Creates the writer for a host. Returns `None` while the host cannot be written to.
    fn new(end: &'a mut Endpoint<F>, host: ProcessId) -> Option<Self> {
        let Endpoint { fabric, peers, layout, config, me, staging, .. } = end;
        let peer = peers.get_mut(host).filter(|peer| peer.is_ready())?;
        let region = peer.resolve(fabric, neb_registers(*me))?;
        let (window, signed) = (u64::from(config.window), config.signed);
        let ordered = fabric.capabilities().ordered_writes;
        Some(RegisterWriter { fabric, peer, layout, region, staging: *staging, host, window, signed, ordered })
    }

    /// Writes the registers of one stream that the host lacks. Returns the number of writes.
    fn write(mut self, stream: &mut Stream) -> u64 {
        let (host, window, sender) = (self.host, self.window, stream.replay.sender());
        let (next, posted) = (stream.replay.next(), stream.at[host.index()].posted);
        // Indices that are more than a window old have an outcome here and are in no slot any more. If writes are not
        // ordered, those in flight must complete first. Otherwise they could overwrite a later index of their slot
        // after that index counts as complete.
        let may_skip = self.ordered || posted == stream.replay.published_at(host);
        if let Some(oldest) = next.checked_sub(window).filter(|oldest| may_skip && *oldest > posted) {
            stream.at[host.index()].posted = oldest;
            stream.replay.published(host, oldest);
        }
        let mut writes = 0;
        while stream.at[host.index()].posted < next && self.peer.has_room(2) {
            let index = stream.at[host.index()].posted;
            let complete = stream.replay.published_at(host);
            // A slot has only one register in flight: the older one must be known to be written at this host.
            let until = next.min(complete + window);
            if index >= until {
                break;
            }
            let near = until.min(index + RUN_RECORDS + 1);
            let there = (index..near).take_while(|index| stream.replay.has_register(*index)).count() as u64;
            if there == 0 {
                // The index was lost here or is too old, so it has no register.
                if complete < index {
                    break;
                }
                stream.replay.published(host, index + 1);
                stream.at[host.index()].posted += 1;
                continue;
            }
            let run = stream.records.run(self.layout.slot(index), there);
            // If the floor is not raised yet for the whole run, a single register may still be allowed.
            let Some(count) = [run, 1].into_iter().find(|count| self.raise_floor(stream, index + count - 1)) else {
                break;
            };
            let offset = self.layout.register_offset(sender, index);
            let source = stream.records.source(self.layout.slot(index), count, self.staged(offset));
            let tell = !self.ordered || count == there || !self.peer.has_room(4);
            let done = tell.then_some(Done::Register { stream: sender, upto: index + count });
            if !self.peer.write(self.fabric, source, RemoteSpan { region: self.region, offset }, done) {
                break;
            }
            writes += 1;
            stream.at[host.index()].posted = index + count;
        }
        writes
    }

    /// Returns the location of the staged copy of a register that is too long for inline data.
    fn staged(&self, offset: u64) -> Span {
        Span { region: self.staging, offset: self.layout.staged_registers() + offset, bytes: 0 }
    }

    /// Announces to the host that a slot may be reused, before the slot is reused. A process that reads a torn register
    /// can then determine whether an older value may be being overwritten. Returns whether the register of `index` may
    /// be written now.
    fn raise_floor(&mut self, stream: &mut Stream, index: u64) -> bool {
        let (window, sender) = (self.window, stream.replay.sender());
        let Some(needed) = (index + 1).checked_sub(window).filter(|needed| *needed > 0) else { return true };
        let at = &mut stream.at[self.host.index()];
        if at.floor_posted < needed {
            let (floor, proof) = if self.signed {
                // Only one proof is written at a time, so that the other one stays whole if the queue pair breaks.
                if at.floor_posted != at.floor_done || !self.peer.has_room(2) {
                    return false;
                }
                let newest = (index..stream.replay.next()).rev().find(|newest| stream.replay.has_register(*newest));
                (newest.unwrap_or(index) + 1 - window, PROOFS - 1 - at.proof_done)
            } else {
                // The floor is raised a quarter of a window ahead, so that one small write serves many registers. It
                // never exceeds the indices that have an outcome here.
                ((needed + window / 4).min(stream.replay.head()).max(needed), 0)
            };
            let words = [floor];
            let (source, offset) = if self.signed {
                let newest = floor + window - 1;
                let staged = self.staged(self.layout.register_offset(sender, newest));
                let source = stream.records.source(self.layout.slot(newest), 1, staged);
                (source, self.layout.proof_offset(sender, proof))
            } else {
                (Source::Inline(words.as_bytes()), self.layout.floor_offset(sender))
            };
            let (target, done) =
                (RemoteSpan { region: self.region, offset }, Done::Floor { stream: sender, floor, proof });
            if !self.peer.write(self.fabric, source, target, Some(done)) {
                return false;
            }
            at.floor_posted = floor;
        }
        self.ordered || at.floor_done >= needed
    }
}
