//! Reads the registers of the other processes and judges them.

use std::ops::Range;

use stentor_fabric::memory::{Ordering, WORD, Word, fence};
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, ProcessId, RemoteSpan, Span};
use stentor_link::purpose::neb_registers;

use super::ask::{Ask, Stage};
use super::endpoint::Endpoint;
use super::peer::Done;
use super::stream::Stream;
use super::{Node, Notice};
use crate::layout::PROOFS;
use crate::replay::Seen;
use crate::value::Value;
use crate::{Authority, Mode, mutant};

/// Number of READs of a torn register and of the replayer's floor, counted together, after which the reader treats the
/// register as overwritten by a newer index. This applies only if the floor permits the replayer to reuse the register.
const MOST_TRIES: u32 = 200;

impl<F: Fabric> Node<F> {
    /// Begins rounds and posts their READs.
    pub(super) fn post_reads(&mut self) -> bool {
        let Node { end, streams, counts, busy, .. } = self;
        let mut worked = false;
        for sender in busy.iter() {
            let Some(stream) = &mut streams[sender.index()] else { continue };
            if stream.replay.round().is_none() && stream.patience.lasts(&stream.replay) {
                worked = true;
                continue;
            }
            if stream.replay.next_round() {
                worked = true;
                // Publish before read: what this process stored must be visible before it reads the others.
                fence(Ordering::SeqCst);
            }
            let Some(round) = stream.replay.round() else { continue };
            let serial = round.serial;
            for host in stream.replay.hosts().iter() {
                let ask = &mut stream.at[host.index()].ask;
                // READs in flight write to memory that is examined when they complete, so no new request begins before
                // that.
                if ask.serial != serial && !ask.is_flying() {
                    *ask = Ask { serial, stage: Stage::Registers, tries: 0 };
                }
                if !matches!(ask.stage, Stage::Registers | Stage::Floors) {
                    continue;
                }
                let posted = ask_host(end, host, stream);
                counts.reads += posted;
                worked |= posted > 0;
            }
        }
        worked
    }

    /// Processes the answers that arrived. Returns whether there were any.
    pub(super) fn poll_read_cq<N: FnMut(Notice<'_>)>(&mut self, notify: &mut N) -> bool {
        let Node { end, streams, scratch, authority, counts, busy, .. } = self;
        let mut worked = false;
        for sender in busy.iter() {
            let Some(stream) = &mut streams[sender.index()] else { continue };
            for host in stream.replay.hosts().iter() {
                let stage = stream.at[host.index()].ask.stage;
                if !matches!(stage, Stage::RegistersHere | Stage::FloorsHere) {
                    continue;
                }
                worked = true;
                let whole = judge(end, stream, host, scratch, authority.as_ref(), notify);
                let ask = &mut stream.at[host.index()].ask;
                if whole {
                    ask.stage = Stage::Idle;
                    let serial = ask.serial;
                    stream.replay.answered(host, serial);
                } else {
                    counts.reread += 1;
                    ask.tries += 1;
                    ask.stage = if stage == Stage::RegistersHere { Stage::Floors } else { Stage::Registers };
                }
            }
        }
        worked
    }
}

/// Posts the READs of a request. Returns their number.
fn ask_host<F: Fabric>(end: &mut Endpoint<F>, host: ProcessId, stream: &mut Stream) -> u64 {
    let sender = stream.replay.sender();
    let Some(round) = stream.replay.round() else { return 0 };
    let (serial, lo, hi) = (round.serial, round.lo, round.hi);
    let replayers = stream.replay.replayers_at(host);
    let Some(scratch) = end.scratch[host.index()] else { return 0 };
    let needed = 2 * replayers.len() as u32 + 1;
    if end.peers.get(host).is_none_or(|peer| !peer.has_room(needed)) {
        return 0;
    }
    let floors = stream.at[host.index()].ask.stage == Stage::Floors;
    let flying = if floors { Stage::FloorsFlying } else { Stage::RegistersFlying };
    if mutant!(end.config.mutant, OwnReplicaByLoad) && host == end.me {
        load_own(end, stream, sender, lo..hi);
        stream.at[host.index()].ask.stage = flying;
        stream.at[host.index()].ask.arrived(serial);
        return 1;
    }
    let Some(peer) = end.peers.get_mut(host) else { return 0 };
    // Post all READs or none, because an incomplete request would never be answered.
    if replayers.iter().any(|replayer| peer.resolve(&mut end.fabric, neb_registers(replayer)).is_none()) {
        return 0;
    }
    let mut posted = 0;
    let last = replayers.iter().last();
    for replayer in replayers.iter() {
        let Some(region) = peer.resolve(&mut end.fabric, neb_registers(replayer)) else { return 0 };
        let done = Done::Read { stream: sender, serial };
        let final_one = Some(replayer) == last;
        if floors && end.config.signed {
            // The two proofs are adjacent, at the host and here.
            let bytes = (PROOFS * end.layout.slot_bytes()) as u32;
            let local = Span { region: scratch, offset: end.layout.scratch_proofs(sender, replayer), bytes };
            let remote = RemoteSpan { region, offset: end.layout.proof_offset(sender, 0) };
            posted += u64::from(peer.read(&mut end.fabric, local, remote, final_one.then_some(done)));
            continue;
        }
        if floors {
            let local =
                Span { region: scratch, offset: end.layout.scratch_floor(sender, replayer), bytes: WORD as u32 };
            let remote = RemoteSpan { region, offset: end.layout.floor_offset(sender) };
            posted += u64::from(peer.read(&mut end.fabric, local, remote, final_one.then_some(done)));
            continue;
        }
        // A run of indices lies in one or two runs of slots.
        let mut from = lo;
        while from < hi {
            let slots = (u64::from(end.config.window) - end.layout.slot(from)).min(hi - from);
            let bytes = (slots * end.layout.slot_bytes()) as u32;
            let offset = end.layout.scratch_offset(sender, replayer, end.layout.slot(from));
            let local = Span { region: scratch, offset, bytes };
            let remote = RemoteSpan { region, offset: end.layout.register_offset(sender, from) };
            from += slots;
            let done = (final_one && from == hi).then_some(done);
            posted += u64::from(peer.read(&mut end.fabric, local, remote, done));
        }
    }
    stream.at[host.index()].ask.stage = flying;
    posted
}

/// Implements the mutant `OwnReplicaByLoad`. The processor's view of the local replica may be older than what the NIC
/// has accepted.
fn load_own<F: Fabric>(end: &Endpoint<F>, stream: &Stream, sender: ProcessId, indices: Range<u64>) {
    let Some(scratch) = end.scratch[end.me.index()] else { return };
    let to = end.fabric.memory(scratch);
    for replayer in stream.replay.replayers_at(end.me).iter() {
        for index in indices.clone() {
            let from = &end.register_words(replayer)[end.layout.register_offset(sender, index) as usize / WORD..];
            let place = end.layout.scratch_offset(sender, replayer, end.layout.slot(index)) as usize / WORD;
            for word in 0..end.layout.slot_bytes() as usize / WORD {
                to[place + word].store(from[word].load(Ordering::Acquire), Ordering::Relaxed);
            }
        }
    }
}

/// Processes a host's answer. Returns whether the answer was complete; otherwise the host must be read again.
fn judge<F: Fabric, N: FnMut(Notice<'_>)>(
    end: &Endpoint<F>,
    stream: &mut Stream,
    host: ProcessId,
    record: &mut [u64],
    authority: Option<&Authority>,
    notify: &mut N,
) -> bool {
    let ask = stream.at[host.index()].ask;
    let Some((lo, hi)) = stream.replay.round().filter(|round| round.serial == ask.serial).map(|r| (r.lo, r.hi)) else {
        // The round has ended, so the answer is not needed.
        return true;
    };
    let Some(scratch) = end.scratch[host.index()] else { return true };
    let sender = stream.replay.sender();
    let mut whole = true;
    for replayer in stream.replay.replayers_at(host).iter() {
        for index in lo..hi {
            let words = end.fabric.memory(scratch);
            let place = end.layout.scratch_offset(sender, replayer, end.layout.slot(index)) as usize / WORD;
            let slot = &words[place..place + end.layout.slot_bytes() as usize / WORD];
            let look = Look { end, authority, sender, index };
            let seen = match look.open(&stream.seals[replayer.index()], slot, record) {
                Seen::Torn { .. } if ask.stage == Stage::FloorsHere && end.config.mode != Mode::All => {
                    let floor = look.floor(&stream.seals[replayer.index()], words, replayer, record);
                    let given_up = floor > index && ask.tries > MOST_TRIES;
                    if given_up { Seen::Newer } else { Seen::Torn { reusable: Some(floor > index) } }
                }
                seen => seen,
            };
            let (answer, evidence) = stream.replay.poll_read_cq(replayer, index, seen, authority);
            whole &= answer;
            if let Some(evidence) = evidence {
                notify(Notice::Equivocation(&evidence));
            }
        }
    }
    whole
}

/// Context for judging a register that was read.
struct Look<'a, F: Fabric> {
    end: &'a Endpoint<F>,
    authority: Option<&'a Authority>,
    sender: ProcessId,
    index: u64,
}

impl<F: Fabric> Look<'_, F> {
    /// Returns the index below which the replayer may reuse registers. If values are signed, the claim is trusted only
    /// as far as a value of the sender's proves it: a correct replayer that overwrites a register has received the
    /// index a window ahead.
    fn floor(&self, seal: &Seal, words: &[Word], replayer: ProcessId, record: &mut [u64]) -> u64 {
        let Look { end, authority, sender, .. } = self;
        let (config, layout) = (&end.config, &end.layout);
        if !config.signed {
            return words[layout.scratch_floor(*sender, replayer) as usize / WORD].load(Ordering::Acquire);
        }
        let proofs = (0..PROOFS).filter_map(|proof| {
            let place = (layout.scratch_proofs(*sender, replayer) + proof * layout.slot_bytes()) as usize / WORD;
            let (_, bytes) = seal.open_newer(0, &words[place..place + layout.slot_bytes() as usize / WORD], record)?;
            let value = Value::new(&record[HEADER_WORDS..], bytes, true, config.payload_bytes).ok()?;
            let proven = value.is_authentic(*sender, *authority) || mutant!(config.mutant, UnprovenFloor);
            proven.then(|| value.index() + 1)
        });
        proofs.max().unwrap_or(0).saturating_sub(u64::from(config.window))
    }

    fn open<'b>(&self, seal: &Seal, slot: &[Word], record: &'b mut [u64]) -> Seen<'b> {
        let config = &self.end.config;
        let lap = self.end.layout.lap(self.index);
        let Some((seen, bytes)) = seal.open_newer(0, slot, record) else {
            let untouched = slot[..HEADER_WORDS].iter().all(|word| word.load(Ordering::Acquire) == 0);
            return if untouched { Seen::Empty } else { Seen::Torn { reusable: None } };
        };
        if seen < lap {
            return Seen::Empty;
        }
        let value = Value::new(&record[HEADER_WORDS..], bytes, config.signed, config.payload_bytes);
        // A correct process seals only valid values, of indices that use this register. A register with other contents
        // was written by a liar, and counts as empty.
        let Ok(value) = value else { return Seen::Empty };
        let window = u64::from(config.window);
        let ahead = value.index().checked_sub(self.index).filter(|ahead| ahead.is_multiple_of(window));
        // The lap is only the replayer's claim. An old value of the sender's under a later lap is not newer.
        if ahead.is_none_or(|ahead| ahead / window != seen - lap)
            && !(mutant!(config.mutant, LapIsBelieved) && seen > lap)
        {
            return Seen::Empty;
        }
        if seen == lap {
            return Seen::Value(value);
        }
        if value.is_authentic(self.sender, self.authority) { Seen::Newer } else { Seen::Empty }
    }
}
