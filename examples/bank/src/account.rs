//! Accounts and their mapping to groups.

use std::fmt;

use serde::{Deserialize, Serialize};
use stentor::Group;

/// The number of an account.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Account(pub u64);

impl Account {
    /// Returns the group that has this account. Its index in `groups`, in the order of the configuration, is the
    /// account's number modulo the number of groups. Returns `None` if there are no groups.
    #[must_use]
    pub fn home(self, groups: &[Group]) -> Option<Group> {
        let place = self.0.checked_rem(groups.len() as u64)?;
        groups.get(usize::try_from(place).ok()?).copied()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
