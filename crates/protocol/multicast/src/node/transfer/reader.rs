//! Reads a state that arrived in pieces.

use std::collections::VecDeque;

/// Reads a state in the order in which its donor wrote it. Each chunk is freed when all of it has been read.
#[derive(Debug)]
pub struct StateReader<'a> {
    chunks: &'a mut VecDeque<Vec<u8>>,
    /// Number of bytes of the first chunk that have been read.
    read: usize,
    left: u64,
}

impl<'a> StateReader<'a> {
    /// Creates a reader of the state in these chunks. Applications get a reader in
    /// [`restore_from`](crate::Application::restore_from). Their tests can create one with this function.
    pub fn new(chunks: &'a mut VecDeque<Vec<u8>>) -> Self {
        let left = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        StateReader { chunks, read: 0, left }
    }

    /// Returns the number of bytes that are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the next contiguous bytes; `None` at the end.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let mut chunk = self.chunks.pop_front()?;
        chunk.drain(..std::mem::take(&mut self.read));
        self.left -= chunk.len() as u64;
        Some(chunk)
    }

    /// Fills `out` as far as there are bytes. Returns the number of bytes read, which is smaller than the length of
    /// `out` only at the end.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len()
            && let Some(chunk) = self.chunks.front()
        {
            let from = &chunk[self.read..];
            let part = from.len().min(out.len() - filled);
            out[filled..filled + part].copy_from_slice(&from[..part]);
            filled += part;
            self.read += part;
            if self.read == chunk.len() {
                self.chunks.pop_front();
                self.read = 0;
            }
        }
        self.left -= filled as u64;
        filled
    }

    /// Returns all bytes that are left.
    #[must_use]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.left as usize);
        while let Some(chunk) = self.next_chunk() {
            all.extend_from_slice(&chunk);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_whatever_the_chunks() {
        let mut chunks: VecDeque<_> = [&b"abc"[..], b"", b"d", b"efghij"].map(<[u8]>::to_vec).into();
        let mut reader = StateReader::new(&mut chunks);
        let mut two = [0; 2];
        assert_eq!((reader.left(), reader.read(&mut two), two), (10, 2, *b"ab"));
        assert_eq!(reader.next_chunk().as_deref(), Some(&b"c"[..]));
        let mut three = [0; 3];
        assert_eq!((reader.read(&mut three), three, reader.left()), (3, *b"def", 4));
        assert_eq!(reader.read_to_end(), b"ghij");
        assert_eq!((reader.left(), reader.read(&mut two), reader.next_chunk()), (0, 0, None));
        assert!(chunks.is_empty(), "chunks that were read are freed");
    }
}
