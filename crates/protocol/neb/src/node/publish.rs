//! Writing own registers to the hosts, floors before slots are used again, and credits.

use stentor_fabric::memory::WORD;
use stentor_fabric::{Fabric, ProcessId, RemoteRegion, RemoteSpan, Source, Span};
use zerocopy::IntoBytes;

use super::Node;
use super::endpoint::Endpoint;
use super::link::{Done, Link};
use super::records::RUN_RECORDS;
use super::stream::Stream;
use crate::layout::{CONTROL, PROOFS};
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
                let Some(mut link) = end.links[host.index()].take() else { continue };
                let posted = post_to(end, &mut link, stream, sender);
                end.links[host.index()] = Some(link);
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
            let Some(link) = &mut end.links[stream.replay.sender().index()] else { continue };
            if !link.has_room(1) {
                continue;
            }
            let Some(region) = link.resolve(&mut end.fabric, CONTROL) else { continue };
            let mut record = [0_u64; 8];
            let sealed = stream.credit.seal(&[head], &mut record);
            let source = Source::Inline(sealed.as_bytes());
            let done = (!ordered).then_some(Done::Credit);
            if link.write(&mut end.fabric, source, RemoteSpan { region, offset: 0 }, done) {
                counts.credits += 1;
                stream.credited = head;
                stream.credit_flying = !ordered;
            }
        }
    }
}

/// Writes the registers of one stream that a host lacks. Returns how many.
fn post_to<F: Fabric>(end: &mut Endpoint<F>, link: &mut Link, stream: &mut Stream, sender: ProcessId) -> u64 {
    let (host, window) = (link.peer, u64::from(end.config.window));
    if !link.ready {
        return 0;
    }
    let Some(region) = link.resolve(&mut end.fabric, Layout::registers(end.me)) else { return 0 };
    let next = stream.replay.next();
    let (ordered, posted) = (end.fabric.capabilities().ordered_writes, stream.at[host.index()].posted);
    // What is more than a window old has an outcome here and lies in no slot any more. What is on its way comes first, where
    // writes are not ordered: it could land on a later one of its slot, which counts as complete then.
    let may_skip = ordered || posted == stream.replay.published_at(host);
    if let Some(oldest) = next.checked_sub(window).filter(|oldest| may_skip && *oldest > posted) {
        stream.at[host.index()].posted = oldest;
        stream.replay.published(host, oldest);
    }
    let mut writes = 0;
    while stream.at[host.index()].posted < next && link.has_room(2) {
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
        let run = stream.records.run(end.layout.slot(index), there);
        // Where floors take their time, those go that may.
        let Some(count) =
            [run, 1].into_iter().find(|count| raise_floor(end, link, stream, (sender, region), index + count - 1))
        else {
            break;
        };
        let offset = end.layout.register_offset(sender, index);
        let staging = Span { region: end.staging, offset: end.layout.staged_registers() + offset, bytes: 0 };
        let source = stream.records.source(end.layout.slot(index), count, staging);
        let tell = !ordered || count == there || !link.has_room(4);
        let done = tell.then_some(Done::Register { stream: sender, upto: index + count });
        if !link.write(&mut end.fabric, source, RemoteSpan { region, offset }, done) {
            break;
        }
        writes += 1;
        stream.at[host.index()].posted = index + count;
    }
    writes
}

/// Before a slot is used again at a host, the host is told that it may be: so a reader of a torn register knows whether it
/// may be an older value on its way out. Whether the register of `index` may be written now.
fn raise_floor<F: Fabric>(
    end: &mut Endpoint<F>,
    link: &mut Link,
    stream: &mut Stream,
    (sender, region): (ProcessId, RemoteRegion),
    index: u64,
) -> bool {
    let window = u64::from(end.config.window);
    let Some(needed) = (index + 1).checked_sub(window).filter(|needed| *needed > 0) else { return true };
    let at = &mut stream.at[link.peer.index()];
    if at.floor_posted < needed && end.config.signed {
        // One at a time, so that the other one is whole whatever becomes of the queue pair.
        if at.floor_posted != at.floor_done || !link.has_room(2) {
            return false;
        }
        let proof = PROOFS - 1 - at.proof_done;
        let newest = (index..stream.replay.next()).rev().find(|newest| stream.replay.has_register(*newest));
        let newest = newest.unwrap_or(index);
        let staged = end.layout.staged_registers() + end.layout.register_offset(sender, newest);
        let staging = Span { region: end.staging, offset: staged, bytes: 0 };
        let source = stream.records.source(end.layout.slot(newest), 1, staging);
        let target = RemoteSpan { region, offset: end.layout.proof_offset(sender, proof) };
        let floor = newest + 1 - window;
        if !link.write(&mut end.fabric, source, target, Some(Done::Floor { stream: sender, floor, proof })) {
            return false;
        }
        at.floor_posted = floor;
    } else if at.floor_posted < needed {
        // Some ahead, so that it is one small write for many. Never above what has an outcome here.
        let floor = (needed + window / 4).min(stream.replay.head()).max(needed);
        let target = RemoteSpan { region, offset: end.layout.floor_offset(sender) };
        let words = [floor];
        debug_assert_eq!(size_of_val(&words), WORD);
        if !link.write(
            &mut end.fabric,
            Source::Inline(words.as_bytes()),
            target,
            Some(Done::Floor { stream: sender, floor, proof: 0 }),
        ) {
            return false;
        }
        at.floor_posted = floor;
    }
    end.fabric.capabilities().ordered_writes || at.floor_done >= needed
}
