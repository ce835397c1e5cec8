//! The deliveries of one group, by delivery number.

use std::collections::BTreeMap;

/// Deliveries by number: a table for the expected numbers, and a map for numbers far beyond.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    near: Vec<Option<u32>>,
    far: BTreeMap<u64, u32>,
    limit: u64,
    set: u64,
    last: u64,
}

impl Sequence {
    /// Creates a sequence for a group whose members make about this many deliveries together.
    pub(super) fn new(deliveries: usize) -> Self {
        Sequence { limit: deliveries as u64 + 1024, ..Sequence::default() }
    }

    /// Returns the delivery with this number. If there is none yet, sets it to `delivery`.
    pub(super) fn get_or_set(&mut self, number: u64, delivery: u32) -> u32 {
        let known = self.get(number);
        if let Some(known) = known {
            return known;
        }
        self.set += 1;
        self.last = self.last.max(number);
        if number < self.limit {
            let index = number as usize;
            if self.near.len() <= index {
                self.near.resize(index + 1, None);
            }
            self.near[index] = Some(delivery);
        } else {
            self.far.insert(number, delivery);
        }
        delivery
    }

    /// Returns the delivery with this number.
    pub(super) fn get(&self, number: u64) -> Option<u32> {
        if number < self.limit {
            self.near.get(number as usize).copied().flatten()
        } else {
            self.far.get(&number).copied()
        }
    }

    /// Returns all deliveries, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.near.iter().filter_map(|delivery| *delivery).chain(self.far.values().copied())
    }

    /// Returns whether numbers are missing. Members record no deliveries that they received in a snapshot.
    pub(super) fn has_gaps(&self) -> bool {
        self.set != self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_far_numbers_are_kept_in_order() {
        let mut sequence = Sequence::new(2);
        assert_eq!(sequence.get_or_set(1 << 60, 7), 7);
        assert_eq!(sequence.get_or_set(1, 3), 3);
        assert_eq!(sequence.get_or_set(1, 4), 3);
        assert_eq!(sequence.iter().collect::<Vec<_>>(), [3, 7]);
        assert!(sequence.has_gaps());
        assert_eq!((sequence.get(1 << 60), sequence.get(2)), (Some(7), None));
    }
}
