//! Writing own registers to the hosts, floors before slots are used again, and credits.

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
    /// Writes registers to every host that keeps them (mode `quorum`).
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

    /// Tells senders what is free again: when it is a quarter of a window, or when there is nothing else to do.
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

/// Writes registers of this process to one host.
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
    /// `None` while the host cannot be written to.
    fn new(end: &'a mut Endpoint<F>, host: ProcessId) -> Option<Self> {
        let Endpoint { fabric, peers, layout, config, me, staging, .. } = end;
        let peer = peers.get_mut(host).filter(|peer| peer.is_ready())?;
        let region = peer.resolve(fabric, neb_registers(*me))?;
        let (window, signed) = (u64::from(config.window), config.signed);
        let ordered = fabric.capabilities().ordered_writes;
        Some(RegisterWriter { fabric, peer, layout, region, staging: *staging, host, window, signed, ordered })
    }

    /// Writes the registers of one stream that the host lacks. Returns how many.
    fn write(mut self, stream: &mut Stream) -> u64 {
        let (host, window, sender) = (self.host, self.window, stream.replay.sender());
        let (next, posted) = (stream.replay.next(), stream.at[host.index()].posted);
        // What is more than a window old has an outcome here and lies in no slot any more. What is on its way comes first,
        // where writes are not ordered: it could land on a later one of its slot, which counts as complete then.
        let may_skip = self.ordered || posted == stream.replay.published_at(host);
        if let Some(oldest) = next.checked_sub(window).filter(|oldest| may_skip && *oldest > posted) {
            stream.at[host.index()].posted = oldest;
            stream.replay.published(host, oldest);
        }
        let mut writes = 0;
        while stream.at[host.index()].posted < next && self.peer.has_room(2) {
            let index = stream.at[host.index()].posted;
            let complete = stream.replay.published_at(host);
            // One register of a slot at a time: the older one's place at this host is known to be written.
            let until = next.min(complete + window);
            if index >= until {
                break;
            }
            let near = until.min(index + RUN_RECORDS + 1);
            let there = (index..near).take_while(|index| stream.replay.has_register(*index)).count() as u64;
            if there == 0 {
                // Lost here, or too old, so there is no register for it.
                if complete < index {
                    break;
                }
                stream.replay.published(host, index + 1);
                stream.at[host.index()].posted += 1;
                continue;
            }
            let run = stream.records.run(self.layout.slot(index), there);
            // Where floors take their time, those go that may.
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

    /// Where the copy of a register lies that is too long to go inline.
    fn staged(&self, offset: u64) -> Span {
        Span { region: self.staging, offset: self.layout.staged_registers() + offset, bytes: 0 }
    }

    /// Before a slot is used again at the host, the host is told that it may be: so a reader of a torn register knows
    /// whether it may be an older value on its way out. Returns whether the register of `index` may be written now.
    fn raise_floor(&mut self, stream: &mut Stream, index: u64) -> bool {
        let (window, sender) = (self.window, stream.replay.sender());
        let Some(needed) = (index + 1).checked_sub(window).filter(|needed| *needed > 0) else { return true };
        let at = &mut stream.at[self.host.index()];
        if at.floor_posted < needed {
            let (floor, proof) = if self.signed {
                // One at a time, so that the other one is whole whatever becomes of the queue pair.
                if at.floor_posted != at.floor_done || !self.peer.has_room(2) {
                    return false;
                }
                let newest = (index..stream.replay.next()).rev().find(|newest| stream.replay.has_register(*newest));
                (newest.unwrap_or(index) + 1 - window, PROOFS - 1 - at.proof_done)
            } else {
                // Some ahead, so that it is one small write for many. Never above what has an outcome here.
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
