//! A buffer for records that have not been sent to their clients yet.

use stentor_multicast::ClientId;

use crate::Answer;

/// Number of bytes of memory that an emptied buffer keeps for records, and again for their lengths.
const KEPT: usize = 512 << 10;

/// Answers in their order. The buffer keeps some memory when it is emptied, so answers that fit into it cause no
/// allocation.
#[derive(Debug, Default)]
pub struct AnswerBuffer {
    entries: Vec<Entry>,
    /// The records of all answers, one after the other.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: ClientId,
    by_all: bool,
    is_notification: bool,
    bytes: usize,
}

impl AnswerBuffer {
    /// Appends an answer.
    #[inline]
    pub fn push(&mut self, answer: &Answer<'_>) {
        let Answer { client, by_all, is_notification, record } = *answer;
        self.entries.push(Entry { client, by_all, is_notification, bytes: record.len() });
        self.bytes.extend_from_slice(record);
    }

    /// Returns the answers, for [`Answers::send`](crate::Answers::send).
    pub fn iter(&self) -> impl Iterator<Item = Answer<'_>> {
        let mut bytes = &self.bytes[..];
        self.entries.iter().map(move |entry| {
            // The lengths are those that `push` recorded.
            let (record, rest) = bytes.split_at(entry.bytes);
            bytes = rest;
            let Entry { client, by_all, is_notification, .. } = *entry;
            Answer { client, by_all, is_notification, record }
        })
    }

    /// Returns the number of answers.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no answer.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Empties the buffer. Some memory stays allocated for later answers.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.entries.shrink_to(KEPT / size_of::<Entry>());
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_returned_unchanged() {
        let answers = [(1, false, &b"yes"[..]), (2, true, &[]), (2, false, b"no")].map(|(client, by_all, record)| {
            Answer { client: ClientId(client), by_all, is_notification: !by_all, record }
        });
        let mut buffer = AnswerBuffer::default();
        for _ in 0..2 {
            assert!(buffer.is_empty());
            answers.iter().for_each(|answer| buffer.push(answer));
            assert!(buffer.len() == 3 && buffer.iter().eq(answers));
            buffer.clear();
        }
    }
}
