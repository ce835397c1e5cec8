//! Stores into shared memory.
#![allow(unsafe_code)]

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, Word, fence};

/// Returns word `index` of `bytes`, which is padded with zeros at the end.
#[inline]
pub(crate) fn word_at(bytes: &[u8], index: usize) -> u64 {
    let rest = &bytes[index * WORD..];
    match rest.first_chunk::<WORD>() {
        Some(word) => u64::from_ne_bytes(*word),
        None => {
            let mut word = [0; WORD];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_ne_bytes(word)
        }
    }
}

/// Stores one write. Everything that was posted before it becomes visible before any word of it (rule 1 of the fabric
/// contract). Word 1 is stored last.
#[inline]
pub(crate) fn store(to: &[Word], word: impl Fn(usize) -> u64) {
    fence(Ordering::Release);
    let Some((first, rest)) = to.split_first() else { return };
    first.store(word(0), Ordering::Relaxed);
    let Some((second, rest)) = rest.split_first() else { return };
    for (index, to) in rest.iter().enumerate() {
        to.store(word(index + 2), Ordering::Relaxed);
    }
    second.store(word(1), Ordering::Release);
}

/// Stores words of a region, with the guarantees of [`store`]. `from` must have at least as many words as `to`.
///
/// # Panics
/// Panics if `from` has fewer words.
#[inline]
pub(crate) fn store_words(from: &[Word], to: &[Word]) {
    let ([first, second, rest @ ..], [to_first, to_second, to_rest @ ..]) = (&from[..to.len()], to) else {
        return store(to, |index| from[index].load(Ordering::Relaxed));
    };
    fence(Ordering::Release);
    to_first.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
    // Both slices have the same length here, so the loop needs no bounds checks.
    for (to, word) in to_rest.iter().zip(rest) {
        to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    to_second.store(second.load(Ordering::Relaxed), Ordering::Release);
}

/// Stores bytes as whole words, with the guarantees of [`store`]. `to` must have as many words as `from` has whole
/// words.
#[inline]
pub(crate) fn store_bytes(from: &[u8], to: &[Word]) {
    let (words, _) = from.as_chunks::<WORD>();
    assert_eq!(words.len(), to.len(), "{} bytes into {} words", from.len(), to.len());
    if let Some(rest) = pairs::split(to) {
        fence(Ordering::Release);
        return pairs::store(words, to, rest);
    }
    // Short records are one line long and need no loop.
    let line = <&[[u8; WORD]; LINE_WORDS]>::try_from(words);
    let (Ok(line), Ok(to_line)) = (line, <&[Word; LINE_WORDS]>::try_from(to)) else {
        return store(to, |index| u64::from_ne_bytes(words[index]));
    };
    fence(Ordering::Release);
    to_line[0].store(u64::from_ne_bytes(line[0]), Ordering::Relaxed);
    for (to, word) in to_line[2..].iter().zip(&line[2..]) {
        to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
    to_line[1].store(u64::from_ne_bytes(line[1]), Ordering::Release);
}

/// Stores two words at once, which halves the number of stores that wait for ownership of the cache line.
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod pairs {
    use stentor_fabric::memory::{Ordering, WORD, Word};

    /// Minimum number of words for which storing pairs is faster: a header and some payload.
    const WORTH: usize = 4;
    const PAIR: usize = 2 * WORD;

    /// Returns the number of bytes of `to` that can be stored as pairs of words. Returns `None` if `to` has fewer than
    /// [`WORTH`] words or is not aligned to pairs, or if the processor lacks AVX.
    #[inline]
    pub(super) fn split(to: &[Word]) -> Option<usize> {
        let aligned = to.len() >= WORTH && to.as_ptr().addr().is_multiple_of(PAIR);
        (aligned && std::arch::is_x86_feature_detected!("avx")).then_some(to.len() / 2 * PAIR)
    }

    /// Stores all words, the first pair last. `bytes` is the result of [`split`].
    #[inline]
    pub(super) fn store(from: &[[u8; WORD]], to: &[Word], bytes: usize) {
        assert!(from.len() == to.len() && to.len() >= WORTH && bytes == to.len() / 2 * PAIR);
        if let (Some(last), Some(to), 1) = (from.last(), to.last(), to.len() % 2) {
            to.store(u64::from_ne_bytes(*last), Ordering::Relaxed);
        }
        // SAFETY: this does what the same number of relaxed stores of atomic words would do, in this order, the last of
        // them with release.
        // - It loads `bytes` bytes from `from` and stores the same number to `to`. These are at least two pairs, and
        //   both slices are that long. `from` is plain memory that is borrowed. `to` may be stored to through a shared
        //   reference, because its words are atomics.
        // - A store of 16 bytes to an address that is aligned to 16 bytes is atomic on processors that have AVX (AMD64
        //   Architecture Programmer's Manual 2, 7.3.2; Intel SDM 3A, 9.1.1), so no reader sees a torn word.
        // - Stores take effect in program order (SDM 3A, 9.2.2), which is what release requires of the last one.
        // - `asm!` may access all memory that it can reach, so the compiler moves no other access of these words across
        //   it.
        unsafe {
            core::arch::asm!(
                // Store whole lines.
                "2:",
                "lea {next}, [{at} + 64]",
                "cmp {next}, {end}",
                "ja 3f",
                "movups {a}, [{from} + {at}]",
                "movups {b}, [{from} + {at} + 16]",
                "movaps [{to} + {at}], {a}",
                "movaps [{to} + {at} + 16], {b}",
                "movups {a}, [{from} + {at} + 32]",
                "movups {b}, [{from} + {at} + 48]",
                "movaps [{to} + {at} + 32], {a}",
                "movaps [{to} + {at} + 48], {b}",
                "mov {at}, {next}",
                "jmp 2b",
                // Store the remaining pairs.
                "3:",
                "cmp {at}, {end}",
                "jae 4f",
                "movups {a}, [{from} + {at}]",
                "movaps [{to} + {at}], {a}",
                "add {at}, 16",
                "jmp 3b",
                // Store the first pair.
                "4:",
                "movups {a}, [{from}]",
                "movaps [{to}], {a}",
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                from = in(reg) from.as_ptr(),
                to = in(reg) to.as_ptr(),
                at = inout(reg) PAIR => _,
                next = out(reg) _,
                end = in(reg) bytes,
                options(nostack)
            );
        }
    }
}

/// A stand-in for other processors, Miri and loom, which use a loop instead.
#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
mod pairs {
    use stentor_fabric::memory::{WORD, Word};

    #[inline]
    pub(super) fn split(_to: &[Word]) -> Option<usize> {
        None
    }

    pub(super) fn store(_from: &[[u8; WORD]], _to: &[Word], _bytes: usize) {
        unreachable!("`split` returns `None`")
    }
}

/// Stores word `index` of a message of `bytes` bytes. Does not change the memory after the message.
#[inline]
pub(crate) fn receive_word(to: &[Word], bytes: usize, index: usize, word: u64) {
    let rest = bytes - index * WORD;
    let word = if rest < WORD {
        let mask = (1 << (rest * 8)) - 1;
        let kept = to[index].load(Ordering::Relaxed) & !mask;
        kept | (word & mask)
    } else {
        word
    };
    to[index].store(word, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_arrives_whole() {
        let bytes: Vec<u8> = (0..320).map(|at| (at % 251) as u8 + 1).collect();
        for (words, first) in (0..40).flat_map(|words| [(words, 0), (words, 1)]) {
            let memory: Vec<Word> = (0..42).map(|_| Word::new(0)).collect();
            store_bytes(&bytes[..words * WORD], &memory[first..first + words]);
            let from: Vec<Word> = (0..42).map(|index| Word::new(u64::MAX - index)).collect();
            let copy: Vec<Word> = (0..42).map(|_| Word::new(0)).collect();
            store_words(&from, &copy[first..first + words]);
            for (index, word) in copy.iter().enumerate() {
                let at = index.wrapping_sub(first);
                let expected = if at < words { u64::MAX - at as u64 } else { 0 };
                assert_eq!(word.load(Ordering::Relaxed), expected, "word {index} of {words} from {first}");
            }
            for (index, word) in memory.iter().enumerate() {
                let at = index.wrapping_sub(first);
                let expected = if at < words { word_at(&bytes, at) } else { 0 };
                assert_eq!(word.load(Ordering::Relaxed), expected, "word {index} of {words} from {first}");
            }
        }
    }

    #[test]
    fn bytes_behind_a_message_are_kept() {
        let memory = [Word::new(u64::MAX), Word::new(u64::MAX)];
        receive_word(&memory, 11, 0, 5);
        receive_word(&memory, 11, 1, 0x0102_0304_0506_0708);
        assert_eq!(memory[0].load(Ordering::Relaxed), 5);
        assert_eq!(memory[1].load(Ordering::Relaxed), 0xffff_ffff_ff06_0708);
    }
}
