//! Tables with an entry for each slot of a client's window.

/// Number of entries that are created together. A table of at most this many entries has all of them from the start.
const CHUNK: usize = 64;

/// Returns the bytes that a vector with this many entries takes on the heap, including the allocator's overhead.
///
/// A vector allocates room for at least four entries.
pub(crate) fn heap_bytes<T>(entries: usize) -> u64 {
    (8 + entries.max(4) * size_of::<T>()).next_multiple_of(16) as u64
}

/// One entry for each slot of a client's window. Slots that are a multiple of the window apart share an entry.
///
/// The address space for all entries is reserved at start. The first write to an entry creates it and all entries
/// before it, in whole chunks. So an unused client costs at most one chunk, whatever its window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SlotTable<T> {
    made: Vec<T>,
    /// The window minus 1; the window is a power of two.
    mask: u64,
    /// The value of every entry that has not been created.
    blank: T,
}

impl<T: Default> SlotTable<T> {
    /// Creates a table for a window, which must be a power of two.
    pub(crate) fn new(window: u32) -> Self {
        let window = window as usize;
        let mut made = Vec::with_capacity(window);
        made.resize_with(window.min(CHUNK), T::default);
        SlotTable { made, mask: window as u64 - 1, blank: T::default() }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.mask + 1
    }

    /// Returns whether slots that are at most this far apart have different entries.
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

    /// Returns the value of an entry that has not been created.
    ///
    /// This is a separate function so that the check compiles to a branch. A selection between two addresses would
    /// delay every reader.
    #[cold]
    fn blank(&self) -> &T {
        &self.blank
    }

    /// Returns the entry of a slot for writing, and creates it if necessary.
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

    /// Returns the entries that have been created. All others are blank.
    pub(crate) fn made(&self) -> &[T] {
        &self.made
    }

    /// Returns the entries that have been created, for writing.
    pub(crate) fn made_mut(&mut self) -> &mut [T] {
        &mut self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_created_by_its_first_write() {
        let mut table = SlotTable::<u64>::new(1024);
        assert_eq!((table.window(), table.made().len()), (1024, CHUNK));
        let (room, start) = (table.made.capacity(), table.made.as_ptr());
        assert_eq!(*table.get(1000), 0);
        assert_eq!(table.made().len(), CHUNK, "a read creates no entry");
        *table.get_mut(64) = 7;
        assert_eq!(table.made().len(), 2 * CHUNK);
        *table.get_mut(1023) = 8;
        assert_eq!((*table.get(1024 + 64), *table.get(2047), table.made().len()), (7, 8, 1024));
        assert_eq!((table.made.capacity(), table.made.as_ptr()), (room, start), "nothing is moved");
    }

    #[test]
    fn a_window_smaller_than_a_chunk_is_created_whole() {
        let mut table = SlotTable::<u64>::new(4);
        *table.get_mut(7) = 1;
        assert_eq!((table.made(), table.at(9)), (&[0, 0, 0, 1][..], 1));
    }
}
