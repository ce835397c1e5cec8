//! A window over a stream of numbers. Numbers complete in any order, and the window tracks the first number that is not
//! complete.

/// A record of the numbers of a stream that are done. They become done in any order. Numbers count from 0 and never
/// wrap. Tags hold them modulo 2³², and [`number_of`] restores the full number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Window {
    /// All numbers below this one are done.
    done: u64,
    marks: Box<[bool]>,
}

impl Window {
    pub(crate) fn new(size: u32) -> Self {
        Window { done: 0, marks: vec![false; size as usize].into() }
    }

    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.marks.len() as u64
    }

    /// Returns the first number that is not done.
    #[inline]
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Returns the slot of a number.
    #[inline]
    pub(crate) fn place(&self, number: u64) -> usize {
        around(number, self.size()) as usize
    }

    /// Returns the number in the window that has this slot.
    #[inline]
    pub(crate) fn number_at(&self, place: u64) -> u64 {
        self.done + around(place + self.size() - around(self.done, self.size()), self.size())
    }

    /// Returns whether a number is done. Numbers beyond the window are not.
    #[inline]
    pub(crate) fn is_done(&self, number: u64) -> bool {
        number < self.done || number < self.done + self.size() && self.marks[self.place(number)]
    }

    /// Marks a number as done. Returns false if it is outside the window or is done already.
    #[inline]
    pub(crate) fn mark(&mut self, number: u64) -> bool {
        if self.is_done(number) || number >= self.done + self.size() {
            return false;
        }
        let place = self.place(number);
        self.marks[place] = true;
        while self.marks[self.place(self.done)] {
            let place = self.place(self.done);
            self.marks[place] = false;
            self.done += 1;
        }
        true
    }
}

/// Returns `number` modulo `size`. If the size is a power of two, as by default, no division is necessary.
#[inline]
pub(crate) fn around(number: u64, size: u64) -> u64 {
    if size.is_power_of_two() { number & (size - 1) } else { number % size }
}

/// Returns the number that a sequence stands for, among the `window` numbers that begin with `expected`.
pub(crate) fn number_of(sequence: u32, first: u32, expected: u64, window: u64) -> Option<u64> {
    let ahead = sequence.wrapping_sub(first.wrapping_add(expected as u32));
    (u64::from(ahead) < window).then(|| expected + u64::from(ahead))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_done_out_of_order_count_when_the_gap_closes() {
        let mut window = Window::new(4);
        assert!(window.mark(2) && window.mark(1));
        assert_eq!((window.done(), window.is_done(2), window.is_done(0)), (0, true, false));
        assert!(window.mark(0));
        assert_eq!(window.done(), 3);
        assert!(!window.mark(1) && !window.mark(7), "twice, or outside");
        assert!(window.mark(6) && window.mark(3));
        assert_eq!(window.done(), 4);
        assert_eq!((window.number_at(0), window.number_at(3)), (4, 7));
    }

    #[test]
    fn around_is_modulo() {
        for size in 1..70 {
            for number in (0..200).chain([u64::MAX, u64::MAX - 1]) {
                assert_eq!(around(number, size), number % size);
            }
        }
    }

    #[test]
    fn sequences_wrap() {
        let first = u32::MAX - 1;
        assert_eq!(number_of(u32::MAX, first, 0, 4), Some(1));
        assert_eq!(number_of(1, first, 0, 4), Some(3));
        assert_eq!(number_of(2, first, 0, 4), None);
        assert_eq!(number_of(1, first, 1 << 40, 4), number_of(1, first, 0, 4).map(|n| n + (1 << 40)));
    }

    proptest! {
        #[test]
        fn any_order_ends_with_everything_done(order in Just((0_u64..16).collect::<Vec<_>>()).prop_shuffle()) {
            let mut window = Window::new(16);
            for (n, number) in order.iter().enumerate() {
                prop_assert!(window.mark(*number));
                let all = (0..).take_while(|below| order[..=n].contains(below)).count() as u64;
                prop_assert_eq!(window.done(), all);
            }
        }
    }
}
