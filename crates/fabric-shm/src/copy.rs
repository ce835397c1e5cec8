//! Words into shared memory.

use stentor_fabric::memory::{LINE_WORDS, Ordering, WORD, Word, fence};

/// Word `index` of `bytes`, padded with zeros at the end.
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

/// Stores one write: what was posted before it becomes visible before any word of it (rule 1), and word 1 last.
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

/// [`store`] of whole words given as bytes; the lengths agree.
#[inline]
pub(crate) fn store_bytes(from: &[u8], to: &[Word]) {
    let (words, _) = from.as_chunks::<WORD>();
    assert_eq!(words.len(), to.len(), "{} bytes into {} words", from.len(), to.len());
    // A short record is one line: no loop.
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

/// Stores word `index` of a message of `bytes` into private or local memory, leaving what lies behind the message.
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
        let bytes: Vec<u8> = (1..=80).collect();
        for words in 0..10 {
            let memory: Vec<Word> = (0..10).map(|_| Word::new(0)).collect();
            store_bytes(&bytes[..words * WORD], &memory[..words]);
            for (index, word) in memory.iter().enumerate() {
                let expected = if index < words { word_at(&bytes, index) } else { 0 };
                assert_eq!(word.load(Ordering::Relaxed), expected, "word {index} of {words}");
            }
        }
    }

    #[test]
    fn a_message_leaves_what_is_behind_it() {
        let memory = [Word::new(u64::MAX), Word::new(u64::MAX)];
        receive_word(&memory, 11, 0, 5);
        receive_word(&memory, 11, 1, 0x0102_0304_0506_0708);
        assert_eq!(memory[0].load(Ordering::Relaxed), 5);
        assert_eq!(memory[1].load(Ordering::Relaxed), 0xffff_ffff_ff06_0708);
    }
}
