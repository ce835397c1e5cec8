//! What came of commands, on its way to clients.

use stentor_multicast::ClientId;
use stentor_session::Answer;

use super::KEPT;

/// What is to be said to clients, in its order. It is used again, so nothing is allocated once it has grown.
#[derive(Debug, Default)]
pub(in crate::node) struct Replies {
    entries: Vec<Entry>,
    /// The records of all, one after the other.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    client: ClientId,
    by_all: bool,
    bytes: usize,
}

impl Replies {
    #[inline]
    pub(super) fn push(&mut self, answer: &Answer<'_>) {
        let Answer { client, by_all, record } = *answer;
        self.entries.push(Entry { client, by_all, bytes: record.len() });
        self.bytes.extend_from_slice(record);
    }

    pub(in crate::node) fn iter(&self) -> impl Iterator<Item = Answer<'_>> {
        let mut bytes = &self.bytes[..];
        self.entries.iter().map(move |entry| {
            // The lengths are those of `push`.
            let (record, rest) = bytes.split_at(entry.bytes);
            bytes = rest;
            Answer { client: entry.client, by_all: entry.by_all, record }
        })
    }

    #[inline]
    pub(in crate::node) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes it empty. Some memory stays for later ones.
    pub(in crate::node) fn clear(&mut self) {
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
    fn answers_come_out_as_they_went_in() {
        let answers = [(1, false, &b"yes"[..]), (2, true, &[]), (2, false, b"no")]
            .map(|(client, by_all, record)| Answer { client: ClientId(client), by_all, record });
        let mut replies = Replies::default();
        for _ in 0..2 {
            assert!(replies.is_empty());
            answers.iter().for_each(|answer| replies.push(answer));
            assert!(!replies.is_empty() && replies.iter().eq(answers));
            replies.clear();
        }
    }
}
