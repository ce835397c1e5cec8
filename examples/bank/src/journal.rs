//! The file in which a teller records its steps.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Counts, Transfer};

/// The state of a teller between two steps. Another process needs nothing else to continue.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The session, encoded by [`stentor::Session::to_bytes`].
    pub(crate) session: Option<Vec<u8>>,
    /// The number of the last transfer.
    pub(crate) number: u64,
    /// The transfer that is under way.
    pub(crate) transfer: Option<Transfer>,
    /// The ticket of the transfer's present command, which has been sent or is about to be sent.
    pub(crate) ticket: Option<Vec<u8>>,
    pub(crate) counts: Counts,
}

/// A file that holds the last entry, and never a partial entry. A journal without a file stores nothing, so no other
/// process can continue the teller.
#[derive(Debug)]
pub struct Journal(Option<PathBuf>);

impl Journal {
    /// Returns a journal in this file. Only one process at a time may use the file.
    #[must_use]
    pub fn at(path: impl AsRef<Path>) -> Journal {
        Journal(Some(path.as_ref().to_owned()))
    }

    /// Returns a journal without a file. If the teller dies, [`finish_old`](crate::finish_old) can end its transfer
    /// between two groups.
    #[must_use]
    pub fn none() -> Journal {
        Journal(None)
    }

    /// Reads the last entry. Returns an empty entry if there is no file.
    pub(crate) fn read(&self) -> io::Result<Entry> {
        let Some(path) = &self.0 else { return Ok(Entry::default()) };
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entry::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the last entry. After a kill the file holds either the old entry or the new one.
    pub(crate) fn write(&self, entry: &Entry) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(entry)?)?;
        fs::rename(new, path)
    }

    /// Returns the path of the file, for error messages.
    pub(crate) fn place(&self) -> String {
        self.0.as_ref().map_or_else(|| "no journal".to_owned(), |path| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;
    use crate::{Account, Order};

    #[test]
    fn last_entry_is_read() {
        let directory = TempDir::new();
        let journal = Journal::at(directory.join("teller"));
        assert_eq!(journal.read().unwrap(), Entry::default());
        let order = Order { from: Account(1), to: Account(2), amount: 3 };
        let mut entry = Entry { session: Some(vec![1, 2]), number: 7, ..Entry::default() };
        entry.transfer = Some(Transfer::new(order, 7));
        for ticket in [None, Some(vec![9; 40])] {
            entry.ticket = ticket;
            journal.write(&entry).unwrap();
            assert_eq!(journal.read().unwrap(), entry);
        }
        fs::write(directory.join("teller"), "half").unwrap();
        assert!(journal.read().is_err());
    }
}
