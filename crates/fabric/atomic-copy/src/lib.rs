//! Copies between shared words, which other threads, processes or devices access concurrently, and private bytes.
//!
//! [`PageMemory`] is page-aligned memory that consists of shared words and that a device can register.
//!
//! A copy loads or stores each shared word in one access, in no particular order, so no reader sees a torn word. Short
//! copies are a loop of relaxed atomic accesses. On x86-64, copies of 128 words or more use the processor's string
//! instruction, unless the positions of the two sides make it slow or could let it tear a word. It then also accesses
//! each shared word in one access, and needs half as much time as the loop.
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(loom))]
mod pages;

use stentor_fabric::memory::{Ordering, WORD, Word};

#[cfg(not(loom))]
pub use pages::PageMemory;

/// Copies bytes into shared words, up to the length of the shorter slice.
#[inline]
pub fn store(to: &[Word], from: &[[u8; WORD]]) {
    let count = to.len().min(from.len());
    if string::pays(to.as_ptr().addr(), from.as_ptr().addr(), count) {
        // SAFETY: both slices have `count` words, and no `Word` overlaps plain bytes that are borrowed. The words of
        // `to` are aligned. They may be stored to through a shared reference because all other users access them as
        // atomics, too.
        unsafe { string::copy(to.as_ptr().cast::<u64>().cast_mut(), from.as_ptr().cast(), count) };
        return;
    }
    for (to, from) in to.iter().zip(from) {
        to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
    }
}

/// Copies shared words into bytes, up to the length of the shorter slice.
#[inline]
pub fn load(from: &[Word], to: &mut [[u8; WORD]]) {
    let count = to.len().min(from.len());
    // The processor may copy several words at once, in chunks that are aligned to the destination. If the destination
    // is not aligned to words, a chunk boundary can lie inside a source word, and a concurrent store to that word can
    // tear it.
    let alike = to.as_ptr().addr().is_multiple_of(WORD);
    if alike && string::pays(to.as_ptr().addr(), from.as_ptr().addr(), count) {
        // SAFETY: both slices have `count` words; `to` is borrowed exclusively. The words of `from` are aligned.
        unsafe { string::copy(to.as_mut_ptr().cast(), from.as_ptr().cast(), count) };
        return;
    }
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Writes bytes to the beginning of `to`. Fills the rest of the last word that is written with zeros.
///
/// # Panics
/// Panics if `to` has too few words.
#[inline]
pub fn store_bytes(to: &[Word], from: &[u8]) {
    let (whole, rest) = from.as_chunks::<WORD>();
    store(&to[..whole.len()], whole);
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        to[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Appends `bytes` bytes from the beginning of `from` to a vector.
///
/// # Panics
/// Panics if `from` has too few words.
#[inline]
pub fn append(from: &[Word], bytes: usize, to: &mut Vec<u8>) {
    let (whole, rest) = (bytes / WORD, bytes % WORD);
    let (from, last) = (&from[..whole], &from[whole..]);
    to.reserve(bytes);
    let place = to.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    if place.addr().is_multiple_of(WORD) && string::pays(place.addr(), from.as_ptr().addr(), whole) {
        // SAFETY: the spare capacity of `to` has room for `bytes`, and `to` is borrowed exclusively; the words of
        // `from` are aligned. After the copy, `whole` words after the old length are initialized, so the length may
        // cover them.
        unsafe {
            string::copy(place.cast(), from.as_ptr().cast(), whole);
            to.set_len(to.len() + whole * WORD);
        }
    } else {
        let begin = to.len();
        to.resize(begin + whole * WORD, 0);
        load(from, to[begin..].as_chunks_mut().0);
    }
    if rest > 0 {
        to.extend_from_slice(&last[0].load(Ordering::Relaxed).to_ne_bytes()[..rest]);
    }
}

/// Copies with `rep movsq`, which every x86-64 processor has.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod string {
    /// Smallest number of words at which the instruction's start-up cost pays off.
    const WORTH: usize = 128;
    /// Distance in bytes of two addresses that a processor considers equal when it compares a load with earlier stores
    /// (4K aliasing).
    const ALIKE: usize = 4096;

    /// Returns whether the string instruction is faster than a loop. It is four times slower if the destination seems
    /// to lie a little ahead of the source (AMD Zen 4: 177 ns for 4096 bytes instead of 44 ns).
    #[inline]
    pub(crate) fn pays(to: usize, from: usize, count: usize) -> bool {
        count >= WORTH && !(1..64).contains(&(to.wrapping_sub(from) % ALIKE))
    }

    /// Copies `count` words. If `to` is aligned, each word of `to` is stored in one access, and each word of `from` is
    /// loaded in one access if `from` is aligned, too.
    ///
    /// # Safety
    /// `to` and `from` must be valid for `count` words and must not overlap. If other threads, processes or devices
    /// access `to` concurrently, `to` must be aligned. If they access `from` concurrently, both must be aligned. They
    /// must access the words as atomics.
    #[inline]
    pub(crate) unsafe fn copy(to: *mut u64, from: *const u64, count: usize) {
        // SAFETY: this does what `count` relaxed loads and stores of atomic words would do, in some order.
        // - It accesses `count` words at `to` and at `from`. The caller guarantees that these are valid. The direction
        //   flag is clear, as `asm!` promises.
        // - REP MOVSQ is a sequence of MOVSQ, each of which loads and stores one quadword. A processor may combine
        //   several of them into chunks that are aligned to the destination. If the destination is aligned to words, no
        //   chunk boundary lies inside a word of an aligned side. Accesses of naturally aligned quadwords are atomic
        //   (AMD64 Architecture Programmer's Manual 2, 7.3.2; Intel SDM 3A, 9.1.1).
        // - A processor may reorder the stores of one string instruction (SDM 3A, 9.2.4), just as relaxed stores to
        //   different words may be reordered. It does not move them past later stores, so a release store after the
        //   instruction publishes them.
        // - `asm!` may access all memory that it can reach, so the compiler moves no other access of these words across
        //   it.
        unsafe {
            core::arch::asm!(
                "rep movsq",
                inout("rcx") count => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Replaces the string instruction on other processors and under Miri and loom: every copy is a loop.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
mod string {
    pub(crate) fn pays(_to: usize, _from: usize, _count: usize) -> bool {
        false
    }

    pub(crate) unsafe fn copy(_to: *mut u64, _from: *const u64, _count: usize) {
        unreachable!("`pays` returns false");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn words(count: usize, value: u64) -> Box<[Word]> {
        (0..count).map(|_| Word::new(value)).collect()
    }

    /// Checks short and long copies at every distance of source and destination modulo 4096, which selects one of the
    /// two code paths. Miri has only one of the paths.
    #[test]
    fn every_word_is_copied_and_no_other_changes() {
        let bytes: Vec<u8> = (0..3 * 4096_u32).map(|n| (n * 7 / 8) as u8 ^ n as u8).collect();
        for count in [0, 1, 127, 128, 129, 512] {
            for shift in 0..if cfg!(miri) { 80 } else { 4096 } {
                let from = bytes[shift..].as_chunks::<WORD>().0;
                let to = words(count + 1, 0xeeee);
                store(&to[..count], from);
                let came: Vec<_> = to.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                assert_eq!(came[..count], from[..count], "{count} words");
                assert_eq!(u64::from_ne_bytes(came[count]), 0xeeee);
                let mut back = vec![0xdd; shift + (count + 1) * WORD];
                let (place, _) = back[shift..].as_chunks_mut::<WORD>();
                load(&to[..count], place);
                assert_eq!(place[..count], from[..count], "{count} words back");
                assert_eq!(place[count], [0xdd; WORD]);
            }
        }
    }

    #[test]
    fn bytes_of_all_lengths_are_copied_back() {
        let bytes: Vec<u8> = (0..3000_u32).map(|n| (n * 7 / 8) as u8 ^ n as u8).collect();
        for length in (0..20).chain([1023, 1024, 1025, 2047, 2049]) {
            for before in 0..9 {
                let memory = words(400, u64::MAX);
                store_bytes(&memory[1..], &bytes[before..][..length]);
                let mut back = vec![7; before];
                append(&memory[1..], length, &mut back);
                assert_eq!((&back[..before], &back[before..]), (&vec![7; before][..], &bytes[before..][..length]));
                let end = 1 + length.div_ceil(WORD);
                let ones = |words: &[Word]| words.iter().all(|word| word.load(Ordering::Relaxed) == u64::MAX);
                assert!(ones(&memory[..1]) && ones(&memory[end..]));
                if !length.is_multiple_of(WORD) {
                    let last = memory[end - 1].load(Ordering::Relaxed).to_ne_bytes();
                    assert!(last[length % WORD..].iter().all(|byte| *byte == 0), "filled up with zeroes");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn too_few_words_panic() {
        append(&words(2, 0), 17, &mut Vec::new());
    }

    /// A thread that loads words while another one stores them sees each word either old or new, never torn.
    #[test]
    fn a_word_is_never_torn() {
        const COUNT: usize = 512;
        const ROUNDS: u8 = 200;
        let (shared, done) = (words(COUNT, 0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    // The copy begins at an odd offset, so that the private side is not aligned.
                    let bytes = vec![round; COUNT * WORD + 1];
                    store(&shared, bytes[1..].as_chunks().0);
                }
                done.store(true, Ordering::Release);
            });
            let mut copy = vec![0; COUNT * WORD + 3];
            loop {
                let last = done.load(Ordering::Acquire);
                let (place, _) = copy[3..].as_chunks_mut();
                load(&shared, place);
                assert!(place.iter().all(|word| *word == [word[0]; WORD]), "a torn word");
                if last {
                    assert!(place.iter().all(|word| *word == [ROUNDS; WORD]), "published by the flag");
                    return;
                }
            }
        });
    }
}
