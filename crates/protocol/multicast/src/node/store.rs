//! A client's messages at a member: private copies, indexed by slot.

use zerocopy::IntoBytes;

use crate::slot_table::SlotTable;
use crate::{DestinationGroups, Header};

/// The location and state of a held message.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    /// The slot plus 1; 0 if the entry is empty.
    tag: u64,
    /// First word of the header in the mirror; 0 if the message is in the side store.
    word: usize,
    /// Words of the header.
    header: usize,
    /// Bytes of the payload.
    bytes: usize,
    /// Ring position of the record's start.
    start: u64,
    /// Ring position after the record.
    end: u64,
    /// `true` if the client waits for the delivery.
    notify: bool,
    /// `true` if the message is in the side store, not in the mirror.
    aside: bool,
    /// `true` if the message is delivered. It stays in the mirror until the ring overwrites it, or in the side store
    /// until another message replaces it.
    released: bool,
}

/// Private copies of one client's messages. A message that arrived through its ring is in the mirror, at the same
/// position. A message that arrived otherwise, or before the ring restarted, is in the side store, which has room for a
/// window of messages.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) mirror: Vec<u64>,
    by_slot: SlotTable<Stored>,
    /// The side store, indexed like `by_slot`; empty until it is used.
    aside: Vec<Vec<u64>>,
    aside_bytes: u64,
    /// Number of undelivered messages in the mirror.
    mirrored: u32,
}

/// A message in the mirror.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mirrored {
    pub(super) groups: usize,
    /// Length of the payload, in bytes.
    pub(super) bytes: usize,
    /// `true` if the client waits for the delivery.
    pub(super) notify: bool,
    /// Index of the first word of the message's header in the mirror.
    pub(super) word: usize,
    /// Ring position of the start of the message's record.
    pub(super) start: u64,
    /// Ring position after the message's record.
    pub(super) end: u64,
}

/// A held message, as its delivery needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldMessage<'a> {
    pub(super) payload: &'a [u8],
    pub(super) groups: DestinationGroups<'a>,
    pub(super) enveloped: bool,
    /// `true` if the client waits for the delivery.
    pub(super) notify: bool,
}

impl Store {
    /// Bytes of the entry for one slot of a client's window.
    pub(super) const PLACE_BYTES: u64 = size_of::<Stored>() as u64;

    pub(super) fn new(ring_bytes: u64, window: u32) -> Self {
        Store {
            mirror: vec![0; ring_bytes as usize / 8],
            by_slot: SlotTable::new(window),
            aside: Vec::new(),
            aside_bytes: 0,
            mirrored: 0,
        }
    }

    /// Adds a message that is in the mirror.
    #[inline]
    pub(super) fn put_mirrored(&mut self, slot: u64, message: &Mirrored) {
        let Mirrored { groups, bytes, notify, word, start, end } = *message;
        let header = Header::words(groups);
        let new = Stored { tag: slot + 1, word, header, bytes, start, end, notify, aside: false, released: false };
        // Usually the entry still belongs to the message one window earlier, which was delivered. It is overwritten.
        let place = self.by_slot.get_mut(slot);
        if place.tag == 0 || place.released && !place.aside {
            *place = new;
        } else {
            self.remove(slot);
            *self.by_slot.get_mut(slot) = new;
        }
        self.mirrored += 1;
    }

    /// Removes a message that the state machine has dropped, if it is the one in this slot. Returns whether it was.
    pub(super) fn drop_message(&mut self, slot: u64, sequence: u64) -> bool {
        let Stored { tag, word, aside, released, .. } = *self.by_slot.get(slot);
        if tag != slot + 1 || released {
            return false;
        }
        let words = if aside { &self.aside[self.by_slot.at(slot)][..] } else { &self.mirror[word..] };
        let same = words.first() == Some(&sequence);
        if same {
            self.remove(slot);
        }
        same
    }

    /// Adds a message that did not arrive through the present ring. `words` are its header and payload.
    pub(super) fn put_aside(&mut self, slot: u64, header: &Header<'_>, words: Vec<u64>) {
        self.remove(slot);
        self.make_aside();
        let at = self.by_slot.at(slot);
        let (header_words, bytes) = (Header::words(header.groups()), header.payload_bytes);
        let (tag, notify) = (slot + 1, header.notify);
        *self.by_slot.get_mut(slot) = Stored {
            tag,
            word: 0,
            header: header_words,
            bytes,
            start: 0,
            end: 0,
            notify,
            aside: true,
            released: false,
        };
        self.aside_bytes += words.len() as u64 * 8;
        self.aside[at] = words;
    }

    fn make_aside(&mut self) {
        if self.aside.is_empty() {
            self.aside.resize_with(self.by_slot.window() as usize, Vec::new);
        }
    }

    /// Moves the messages in slot `first` and later slots from the mirror to the side store, because the ring restarts.
    pub(super) fn move_aside(&mut self, first: u64) {
        for slot in first..first + self.by_slot.window() {
            let at = self.by_slot.at(slot);
            let stored = *self.by_slot.get(slot);
            if stored.released && !stored.aside {
                // The ring's positions restart, so it is unknown when the delivered message will be overwritten.
                self.by_slot.get_mut(slot).tag = 0;
            }
            if stored.tag != slot + 1 || stored.aside || stored.released {
                continue;
            }
            self.make_aside();
            let words = self.words_of(&stored, at).to_vec();
            self.aside_bytes += words.len() as u64 * 8;
            self.aside[at] = words;
            *self.by_slot.get_mut(slot) = Stored { word: 0, start: 0, end: 0, aside: true, ..stored };
            self.mirrored -= 1;
        }
    }

    fn words_of(&self, stored: &Stored, at: usize) -> &[u64] {
        let words = stored.header + stored.bytes.div_ceil(8);
        if stored.aside { &self.aside[at][..words] } else { &self.mirror[stored.word..stored.word + words] }
    }

    /// Returns the header and payload of the message in a slot, if they are still here. `reach` is the position up to
    /// which the mirror was written. A delivered message in the mirror is intact until `reach` is more than a lap after
    /// the message's start. A delivered message in the side store is kept longer: it may have come from one member
    /// alone, so other members that lack it may request it here.
    pub(super) fn record(&self, slot: u64, reach: u64, lap_cells: u64) -> Option<&[u64]> {
        let (at, stored) = (self.by_slot.at(slot), self.by_slot.get(slot));
        let intact = !stored.released || stored.aside || reach <= stored.start + lap_cells;
        (stored.tag == slot + 1 && intact).then(|| self.words_of(stored, at))
    }

    #[inline]
    pub(super) fn has(&self, slot: u64) -> bool {
        let stored = self.by_slot.get(slot);
        stored.tag == slot + 1 && !stored.released
    }

    /// Returns a message that is held.
    #[inline]
    pub(super) fn held(&self, slot: u64) -> HeldMessage<'_> {
        let (at, stored) = (self.by_slot.at(slot), self.by_slot.get(slot));
        let (header, payload) = self.words_of(stored, at).split_at(stored.header);
        HeldMessage {
            payload: &payload.as_bytes()[Header::undelivered_bytes(header)..stored.bytes],
            groups: DestinationGroups::from_words(&header[Header::words(0)..]),
            enveloped: Header::is_enveloped(header),
            notify: stored.notify,
        }
    }

    /// Marks a message as delivered. Returns the ring position after it, if it is in the mirror.
    #[inline]
    pub(super) fn release(&mut self, slot: u64) -> Option<u64> {
        let stored = self.by_slot.get_mut(slot);
        if stored.tag != slot + 1 || stored.released {
            return None;
        }
        stored.released = true;
        if stored.aside {
            return None;
        }
        self.mirrored -= 1;
        Some(stored.end)
    }

    /// Empties the entry for a slot. Returns the ring position after its message, if that was in the mirror,
    /// undelivered and in this slot.
    #[cold]
    pub(super) fn remove(&mut self, slot: u64) -> Option<u64> {
        let Stored { tag, aside, end, released, .. } = *self.by_slot.get(slot);
        if tag == 0 {
            return None;
        }
        self.by_slot.get_mut(slot).tag = 0;
        if aside {
            let words = std::mem::take(&mut self.aside[self.by_slot.at(slot)]);
            self.aside_bytes -= words.len() as u64 * 8;
            return None;
        }
        if released {
            return None;
        }
        self.mirrored -= 1;
        (tag == slot + 1).then_some(end)
    }

    /// Returns whether no undelivered message is in the mirror, so that the ring may restart.
    #[inline]
    pub(super) fn is_mirror_empty(&self) -> bool {
        self.mirrored == 0
    }

    /// Returns the bytes in the side store.
    pub(super) fn aside_bytes(&self) -> u64 {
        self.aside_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Destination;
    use crate::{GroupId, Topology};

    /// Returns a message whose header begins at `word`, and whose record has the ring positions from `start` to `end`.
    ///
    /// The tests use a ring of 5 cells. Its last cell holds only the ends of records that began before it. A record in
    /// the fourth cell therefore ends where the next lap begins.
    fn mirrored(word: usize, start: u64, end: u64) -> Mirrored {
        Mirrored { groups: 1, bytes: 8, notify: false, word, start, end }
    }

    #[test]
    fn a_delivered_message_is_kept_until_its_own_cell_is_written_again() {
        const LAP: u64 = 5;
        let mut store = Store::new(LAP * 64, 4);
        store.put_mirrored(0, &mirrored(3 * 8 + 3, 3, 5));
        assert!(store.record(0, 8, LAP).is_some());
        assert_eq!(store.release(0), Some(5));
        assert!(store.record(0, 3 + LAP, LAP).is_some(), "written up to its cell");
        assert!(store.record(0, 4 + LAP, LAP).is_none(), "its cell is written");
    }

    /// The client's write is lost on the way to two members. The third member forwards the message to the first, which
    /// delivers it. The second must get it from there.
    #[test]
    fn delivered_message_in_the_side_store_is_kept_until_it_is_replaced() {
        const LAP: u64 = 5;
        let mut store = Store::new(LAP * 64, 4);
        let topology = Topology::new(&[1], 1).expect("the topology is possible");
        let put = |store: &mut Store, slot: u64| {
            let mut words = vec![0; Header::words(1) + 1];
            Header::encode(slot + 1, 8, false, &[Destination { group: GroupId(0), slot }], &mut words);
            let header = Header::decode(&words, words.len() * 8, &topology).expect("the header is valid");
            store.put_aside(slot, &header, words.clone());
        };
        put(&mut store, 0);
        assert!(store.has(0) && store.aside_bytes() == 32);
        assert_eq!((store.release(0), store.release(0)), (None, None));
        assert!(!store.has(0), "delivered");
        assert!(store.record(0, u64::MAX, LAP).is_some(), "the ring does not overwrite the side store");
        store.move_aside(0);
        assert!(store.record(0, u64::MAX, LAP).is_some(), "nor does a restarted ring");
        // One window later, a message from the ring takes the place of the first message. A message in the side store
        // takes the place of a second one.
        store.put_mirrored(4, &mirrored(3, 0, 1));
        assert_eq!((store.record(0, 0, LAP), store.aside_bytes()), (None, 0));
        put(&mut store, 1);
        store.release(1);
        put(&mut store, 5);
        assert_eq!((store.record(1, 0, LAP), store.aside_bytes()), (None, 32));
        assert!(store.has(5));
    }

    /// Two messages are held and one is delivered when the ring restarts, and new records overwrite all three.
    #[test]
    fn held_messages_survive_a_ring_restart_that_overwrites_them() {
        const LAP: u64 = 5;
        let mut store = Store::new(LAP * 64, 4);
        // Slots 3 to 5 wrap around in a window of four.
        for slot in 3..6 {
            let line = slot as usize - 3;
            store.mirror[line * 8..(line + 1) * 8].fill(slot);
            let message = mirrored(line * 8 + 3, line as u64, line as u64 + 1);
            store.put_mirrored(slot, &Mirrored { notify: slot == 5, ..message });
        }
        assert_eq!(store.release(3), Some(1));
        let held = [4, 5].map(|slot| store.record(slot, 3, LAP).expect("the store holds the slot").to_vec());
        assert!(store.record(3, 3, LAP).is_some() && !store.is_mirror_empty());
        store.move_aside(4);
        assert!(store.is_mirror_empty(), "the ring may start anew");
        store.mirror.fill(u64::MAX);
        // The ring restarts at 0, so its position does not show that the messages were overwritten.
        assert!(store.record(3, 0, LAP).is_none(), "a delivered message cannot be distinguished from new records");
        for (slot, held) in [4, 5].into_iter().zip(&held) {
            assert!(store.has(slot));
            assert_eq!(store.record(slot, 0, LAP), Some(&held[..]));
            let message = store.held(slot);
            assert_eq!((message.payload, message.notify), (&slot.to_ne_bytes()[..], slot == 5));
        }
        assert_eq!(store.aside_bytes(), held.iter().map(|words| words.len() as u64 * 8).sum::<u64>());
        // A message that was moved frees no space of the present ring.
        assert_eq!([4, 5].map(|slot| store.release(slot)), [None, None]);
        assert_eq!((store.has(4), store.has(5)), (false, false));
        for (slot, held) in [4, 5].into_iter().zip(&held) {
            assert_eq!(store.record(slot, 0, LAP), Some(&held[..]), "other members may ask for it here");
            store.put_mirrored(slot + 4, &mirrored(3, 0, 1));
        }
        assert_eq!(store.aside_bytes(), 0);
    }
}
