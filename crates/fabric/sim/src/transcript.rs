//! Record of the events of a run, line by line, in an encoding that survives renaming of code.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Length of the text that is hashed at once, in bytes.
const CHUNK: usize = 1 << 16;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A list of lines and its hash. A line consists of fixed words, decimal numbers and, at its end, hexadecimal bytes. It
/// contains no name of a type or module and no `Debug` text, so code with the same behaviour has the same transcript.
#[derive(Clone)]
pub struct Transcript {
    hash: Xxh3,
    text: Vec<u8>,
    /// Number of bytes of `text` that are in `hash`.
    hashed: usize,
    keeps: bool,
}

impl Transcript {
    /// Creates an empty transcript that keeps only its hash.
    #[must_use]
    pub fn hashing() -> Self {
        Transcript { hash: Xxh3::new(), text: Vec::new(), hashed: 0, keeps: false }
    }

    /// Creates an empty transcript that keeps its text as well.
    #[must_use]
    pub fn keeping() -> Self {
        Transcript { keeps: true, ..Transcript::hashing() }
    }

    /// Appends a line.
    pub fn line(&mut self, word: &str, numbers: &[u64], data: &[u8]) {
        self.begin(word, numbers);
        if !data.is_empty() {
            self.text.push(b' ');
        }
        let hex = |byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        self.text.extend(data.iter().flat_map(hex));
        self.end();
    }

    /// Appends a line whose data is given in words, with the lowest byte first.
    pub fn line_of_words(&mut self, word: &str, numbers: &[u64], data: impl Iterator<Item = u64>) {
        self.begin(word, numbers);
        let mut space: &[u8] = b" ";
        for word in data {
            self.text.extend_from_slice(std::mem::take(&mut space));
            let mut digits = [0; 16];
            for (pair, byte) in digits.chunks_exact_mut(2).zip(word.to_le_bytes()) {
                pair.copy_from_slice(&[byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
            }
            self.text.extend_from_slice(&digits);
        }
        self.end();
    }

    fn begin(&mut self, word: &str, numbers: &[u64]) {
        self.text.extend_from_slice(word.as_bytes());
        for number in numbers {
            push_decimal(&mut self.text, *number);
        }
    }

    fn end(&mut self) {
        self.text.push(b'\n');
        if self.text.len() - self.hashed >= CHUNK {
            self.settle();
        }
    }

    /// Adds the text so far to the hash.
    fn settle(&mut self) {
        self.hash.update(&self.text[self.hashed..]);
        if !self.keeps {
            self.text.clear();
        }
        self.hashed = self.text.len();
    }

    /// Returns the xxh3-64 of all lines so far, line ends included.
    pub fn hash(&mut self) -> u64 {
        self.settle();
        self.hash.digest()
    }

    /// Returns all lines, or nothing if only the hash is kept.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        if self.keeps { &self.text } else { &[] }
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcript").field("keeps", &self.keeps).finish_non_exhaustive()
    }
}

/// Appends a space and a number.
fn push_decimal(text: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        text.extend_from_slice(&[b' ', DIGITS[number as usize]]);
        return;
    }
    let mut digits = [0; 21];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = DIGITS[(number % 10) as usize];
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits[at - 1] = b' ';
    text.extend_from_slice(&digits[at - 1..]);
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    #[test]
    fn line_consists_of_word_numbers_and_bytes() {
        let mut transcript = Transcript::keeping();
        transcript.line("post", &[0, 7, u64::MAX], &[0x0f, 0xa0]);
        transcript.line("end", &[], &[]);
        assert_eq!(transcript.text(), b"post 0 7 18446744073709551615 0fa0\nend\n");
        assert_eq!(transcript.hash(), xxh3_64(b"post 0 7 18446744073709551615 0fa0\nend\n"));
    }

    #[test]
    fn hash_does_not_depend_on_keeping_the_text() {
        let (mut kept, mut hashed) = (Transcript::keeping(), Transcript::hashing());
        for number in 0..20_000 {
            kept.line("landing", &[number], &number.to_le_bytes());
            hashed.line_of_words("landing", &[number], [number].into_iter());
        }
        assert!(kept.text().len() > 3 * CHUNK);
        assert_eq!(kept.hash(), xxh3_64(kept.text()));
        assert_eq!(hashed.hash(), kept.hash());
        assert!(hashed.text().is_empty());
    }
}
