//! Merging of adjoining WRITEs: the WRITE that a queue pair holds back, and its inline data.
//!
//! A device starts a request as soon as it is posted. A WRITE is therefore held here, where adjoining WRITEs can join
//! it, until the process flushes, polls, waits or posts another request on the queue pair. A WRITE adjoins the held one
//! under two conditions. Its target begins where the held target ends. Its data begins where the held data ends, or
//! both are inline.
//!
//! # Invariants
//! - The held WRITE is the last request of its queue pair: the next request either joins it or is posted after it.
//! - All parts of the held WRITE are in the send queue ([`Outstanding`](super::outstanding::Outstanding)) and occupy
//!   slots, although they are not posted to the device yet.
//! - A part lies within the peer's region. A WRITE whose range the peer would refuse is therefore never merged with
//!   other WRITEs.
//! - Inline data stays in `short` if it is not longer than the device's limit for inline data. Longer data is stored in
//!   registered memory, which is freed when the WRITE or a later request of the queue pair completes. If that memory
//!   has no room, the part does not join.

use std::sync::Arc;

use stentor_fabric::memory::WORD;
use stentor_fabric::{Source, Span};
use stentor_fabric_net::{InlineRing, MOST_MERGED};

use crate::qp::Remote;
use crate::{Domain, MakeError, PageMemory, Region};

/// Maximum length of one queue pair's registered inline data, in bytes.
const MOST_INLINE: u64 = 64 << 10;
/// Unit in which devices register memory, in bytes.
const PAGE: u64 = 4096;

/// Location of the data of a held WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The data is in unregistered memory, from which the device copies it when the WRITE is posted.
    Short,
    /// The data is in registered memory, at this offset.
    Long(u64),
    /// The data is in a region, at the offset of this span.
    Region(Span),
}

/// A WRITE that waits for adjoining ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) remote: Remote,
    pub(super) bytes: u32,
    /// `true` if one of the WRITEs that were merged into this one is signalled.
    pub(super) signalled: bool,
}

/// The held WRITE of one queue pair, with the memory for its inline data.
#[derive(Debug)]
pub(super) struct Holder {
    held: Option<Held>,
    short: Box<[u8]>,
    ring: InlineRing,
    memory: Option<Arc<PageMemory>>,
    /// `true` if the device's list of holding ends contains this queue pair.
    pub(super) is_listed: bool,
}

/// Registers memory for the inline data of a queue pair whose send queue has this depth. Returns `None` if the queue
/// pair never needs such memory.
pub(super) fn register(domain: &Arc<Domain>, depth: u32, inline_bytes: u32) -> Result<Option<Region>, MakeError> {
    let bytes = (u64::from(depth) * u64::from(inline_bytes)).min(MOST_INLINE).next_multiple_of(PAGE);
    if bytes == 0 { Ok(None) } else { Region::register(domain, bytes as usize, None).map(Some) }
}

impl Holder {
    /// Creates a holder for a queue pair with at most `inline_bytes` bytes of inline data. `memory` is the memory that
    /// [`register`] created.
    pub(super) fn new(inline_bytes: u32, memory: Option<Arc<PageMemory>>) -> Holder {
        let ring = InlineRing::new(memory.as_ref().map_or(0, |memory| memory.bytes()));
        Holder { held: None, short: vec![0; inline_bytes as usize].into(), ring, memory, is_listed: false }
    }

    /// Returns whether a WRITE of this length may be held.
    #[inline]
    pub(super) fn takes(source: &Source<'_>) -> bool {
        (1..u64::from(MOST_MERGED)).contains(&source.bytes())
    }

    /// Holds a WRITE. No other WRITE may be held at the time of the call.
    #[inline]
    pub(super) fn hold(&mut self, source: &Source<'_>, remote: Remote, signalled: bool) {
        debug_assert!(self.held.is_none(), "the held WRITE must be posted first");
        let place = match source {
            Source::Inline(data) => {
                self.short[..data.len()].copy_from_slice(data);
                Place::Short
            }
            Source::Region(span) => Place::Region(*span),
        };
        self.held = Some(Held { place, remote, bytes: source.bytes() as u32, signalled });
    }

    /// Merges a WRITE into the held one if they adjoin, the result is not too long, and inline data has room. Returns
    /// whether the WRITE was merged.
    #[inline]
    pub(super) fn join(&mut self, source: &Source<'_>, remote: Remote, signalled: bool) -> bool {
        let Some(mut held) = self.held else { return false };
        let bytes = source.bytes() as u32;
        let begin = held.remote.address.wrapping_add(held.bytes.into());
        if (remote.key, remote.address) != (held.remote.key, begin) || bytes > MOST_MERGED - held.bytes {
            return false;
        }
        let place = match (held.place, source) {
            (Place::Region(span), Source::Region(next)) => {
                let end = span.offset + u64::from(held.bytes);
                (span.region == next.region && end == next.offset).then_some(held.place)
            }
            (Place::Short, Source::Inline(data)) => self.append(held.bytes as usize, data),
            (Place::Long(_), Source::Inline(data)) => self.extend(data).then_some(held.place),
            _ => None,
        };
        let Some(place) = place else { return false };
        held.place = place;
        held.bytes += bytes;
        held.signalled |= signalled;
        self.held = Some(held);
        true
    }

    /// Appends data to `short`. If `short` is too small for all data, moves all of it to registered memory.
    fn append(&mut self, begin: usize, data: &[u8]) -> Option<Place> {
        let end = begin + data.len();
        if end <= self.short.len() {
            self.short[begin..end].copy_from_slice(data);
            return Some(Place::Short);
        }
        let offset = self.ring.take(end as u64)?;
        let words = &self.memory.as_ref()?.words()[offset as usize / WORD..];
        stentor_atomic_copy::store_bytes(words, &self.short[..begin]);
        stentor_atomic_copy::store_bytes(&words[begin / WORD..], data);
        Some(Place::Long(offset))
    }

    fn extend(&mut self, data: &[u8]) -> bool {
        let Some(offset) = self.ring.extend(data.len() as u64) else { return false };
        let Some(memory) = &self.memory else { return false };
        stentor_atomic_copy::store_bytes(&memory.words()[offset as usize / WORD..], data);
        true
    }

    /// Removes and returns the held WRITE.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Held> {
        self.held.take()
    }

    /// Returns the first `bytes` bytes of `short`, which are the data of the held WRITE.
    pub(super) fn short(&self, bytes: u32) -> &[u8] {
        &self.short[..bytes as usize]
    }

    /// Returns the position in the ring up to which inline data can be freed once the last posted request is complete.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.ring.taken()
    }

    /// Frees the inline data of a completed request, up to a value of [`taken`](Holder::taken).
    #[inline]
    pub(super) fn free_up_to(&mut self, taken: u64) {
        self.ring.free_up_to(taken);
    }

    /// Drops the held WRITE and all inline data, after the queue pair broke and its requests were flushed.
    pub(super) fn clear(&mut self) {
        self.held = None;
        self.ring.clear();
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::RegionId;
    use stentor_fabric::memory::Ordering;

    use super::*;

    const INLINE: u32 = 64;

    fn holder(bytes: usize) -> Holder {
        Holder::new(INLINE, PageMemory::zeroed(bytes))
    }

    fn at(address: u64) -> Remote {
        Remote { address, key: 7 }
    }

    fn region(offset: u64, bytes: u32) -> Source<'static> {
        Source::Region(Span { region: RegionId(3), offset, bytes })
    }

    #[test]
    fn adjoining_inline_data_is_contiguous_whether_short_or_long() {
        let mut holder = holder(4096);
        holder.hold(&Source::Inline(&[1; 40]), at(1000), false);
        assert!(holder.join(&Source::Inline(&[2; 24]), at(1040), false));
        assert_eq!(holder.held.map(|held| (held.place, held.bytes)), Some((Place::Short, 64)));
        assert_eq!(holder.short(64), [&[1; 40][..], &[2; 24]].concat());
        assert!(
            holder.join(&Source::Inline(&[3; 8]), at(1064), true)
                && holder.join(&Source::Inline(&[4; 16]), at(1072), false)
        );
        let held = holder.take().unwrap();
        assert_eq!(held, Held { place: Place::Long(0), remote: at(1000), bytes: 88, signalled: true });
        let words = holder.memory.as_ref().unwrap().words();
        let bytes: Vec<u8> = words[..12].iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        assert_eq!(bytes, [&[1; 40][..], &[2; 24], &[3; 8], &[4; 16], &[0; 8]].concat());
        assert!(holder.take().is_none() && !holder.join(&Source::Inline(&[5; 8]), at(1088), false), "nothing is held");
    }

    #[test]
    fn adjoining_parts_of_a_region_are_one_span() {
        let mut holder = holder(4096);
        holder.hold(&region(128, 64), at(0), true);
        assert!(holder.join(&region(192, 256), at(64), false));
        let span = Span { region: RegionId(3), offset: 128, bytes: 64 };
        let held = Held { place: Place::Region(span), remote: at(0), bytes: 320, signalled: true };
        assert_eq!(holder.take(), Some(held));
    }

    #[test]
    fn writes_that_do_not_adjoin_are_not_merged() {
        let mut holder = holder(4096);
        holder.hold(&region(128, 64), at(512), false);
        let other = Source::Region(Span { region: RegionId(4), offset: 192, bytes: 64 });
        for (source, remote) in [
            (region(192, 64), at(584)),
            (region(192, 64), at(512)),
            (region(192, 64), Remote { address: 576, key: 8 }),
            (region(200, 64), at(576)),
            (other, at(576)),
            (Source::Inline(&[1; 8]), at(576)),
        ] {
            assert!(!holder.join(&source, remote, false), "{source:?} to {remote:?}");
        }
        holder.take();
        holder.hold(&Source::Inline(&[1; 8]), at(0), false);
        assert!(!holder.join(&region(0, 8), at(8), false), "one part is inline and the other is not");
    }

    #[test]
    fn merged_write_does_not_exceed_the_limit() {
        let mut holder = holder(4096);
        holder.hold(&region(0, MOST_MERGED - 64), at(0), false);
        assert!(!holder.join(&region((MOST_MERGED - 64).into(), 72), at((MOST_MERGED - 64).into()), false));
        assert!(holder.join(&region((MOST_MERGED - 64).into(), 64), at((MOST_MERGED - 64).into()), false));
        assert!(!holder.join(&region(MOST_MERGED.into(), 8), at(MOST_MERGED.into()), false));
        assert!(!Holder::takes(&region(0, MOST_MERGED)) && !Holder::takes(&Source::Inline(&[])));
        assert!(Holder::takes(&region(0, MOST_MERGED - 8)) && Holder::takes(&Source::Inline(&[0; 8])));
    }

    /// The data of outstanding WRITEs must not be overwritten, so a part for which there is no room is posted
    /// separately.
    #[test]
    fn part_without_room_for_its_data_is_not_merged() {
        let mut holder = holder(128);
        holder.hold(&Source::Inline(&[1; 64]), at(0), false);
        assert!(holder.join(&Source::Inline(&[1; 64]), at(64), false));
        assert!(!holder.join(&Source::Inline(&[1; 8]), at(128), false));
        let taken = holder.taken();
        holder.take();
        holder.hold(&Source::Inline(&[2; 64]), at(0), false);
        assert!(!holder.join(&Source::Inline(&[2; 8]), at(64), false), "the first WRITE is outstanding");
        assert!(Holder::new(INLINE, None).append(64, &[3; 8]).is_none(), "no memory");
        holder.free_up_to(taken);
        assert!(holder.join(&Source::Inline(&[2; 8]), at(64), false));
        holder.clear();
        assert!(holder.take().is_none());
        holder.hold(&Source::Inline(&[4; 64]), at(0), false);
        assert!(holder.join(&Source::Inline(&[4; 64]), at(64), false), "a new life has all the memory");
    }
}
