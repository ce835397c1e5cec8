//! Tables with an entry for each slot of a client's window.

/// Entries that are made together: a table of at most so many has all of them from the start.
const CHUNK: usize = 64;

/// Returns the bytes that a vector of so many entries takes, with what the allocator adds. A vector has room for four.
pub(crate) fn heap_bytes<T>(entries: usize) -> u64 {
    (8 + entries.max(4) * size_of::<T>()).next_multiple_of(16) as u64
}

/// One entry for each slot of a client's window. A slot shares its entry with those whole windows before and after it.
///
/// Address space for all of them is reserved at start. An entry is made when a slot first comes near it, so a client
/// that nobody uses costs a chunk, whatever the window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SlotTable<T> {
    made: Vec<T>,
    /// One less than the window, which is a power of two.
    mask: u64,
    /// Stands for every entry that is not made.
    blank: T,
}

impl<T: Default> SlotTable<T> {
    /// Makes a table for a window, which is a power of two.
    pub(crate) fn new(window: u32) -> Self {
        let window = window as usize;
        let mut made = Vec::with_capacity(window);
        made.resize_with(window.min(CHUNK), T::default);
        SlotTable { made, mask: window as u64 - 1, blank: T::default() }
    }

    /// Returns how many entries there are.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.mask + 1
    }

    /// Returns whether a slot has an entry of its own beside that of one so many slots before it.
    #[inline]
    pub(crate) fn reaches(&self, distance: u64) -> bool {
        distance <= self.mask
    }

    /// Returns the index of a slot's entry.
    #[inline]
    pub(crate) fn at(&self, slot: u64) -> usize {
        (slot & self.mask) as usize
    }

    /// Returns the entry of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u64) -> &T {
        let at = self.at(slot);
        if at < self.made.len() { &self.made[at] } else { self.blank() }
    }

    /// Returns what stands for an entry that is not made. A call, so that the test for it is a branch and not a choice between
    /// two addresses, which every reader would wait for.
    #[cold]
    fn blank(&self) -> &T {
        &self.blank
    }

    /// Returns the entry of a slot, which is made if it is not there.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u64) -> &mut T {
        let at = self.at(slot);
        if at >= self.made.len() {
            self.make(at);
        }
        &mut self.made[at]
    }

    #[cold]
    fn make(&mut self, at: usize) {
        let through = (at + 1).next_multiple_of(CHUNK).min(self.mask as usize + 1);
        self.made.resize_with(through, T::default);
    }

    /// Returns the entries that are made; all others are blank.
    pub(crate) fn made(&self) -> &[T] {
        &self.made
    }

    /// Returns the entries that are made, for changing them.
    pub(crate) fn made_mut(&mut self) -> &mut [T] {
        &mut self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_made_when_it_is_written() {
        let mut table = SlotTable::<u64>::new(1024);
        assert_eq!((table.window(), table.made().len()), (1024, CHUNK));
        let (room, start) = (table.made.capacity(), table.made.as_ptr());
        assert_eq!(*table.get(1000), 0);
        assert_eq!(table.made().len(), CHUNK, "reading makes nothing");
        *table.get_mut(64) = 7;
        assert_eq!(table.made().len(), 2 * CHUNK);
        *table.get_mut(1023) = 8;
        assert_eq!((*table.get(1024 + 64), *table.get(2047), table.made().len()), (7, 8, 1024));
        assert_eq!((table.made.capacity(), table.made.as_ptr()), (room, start), "nothing is moved");
    }

    #[test]
    fn a_window_of_less_than_a_chunk_is_whole_from_the_start() {
        let mut table = SlotTable::<u64>::new(4);
        *table.get_mut(7) = 1;
        assert_eq!((table.made(), table.at(9)), (&[0, 0, 0, 1][..], 1));
    }
}
