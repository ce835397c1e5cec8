//! Where the histories of groups began, as their replies have told.

use stentor_multicast::{GroupId, Incarnation};
use stentor_session::Pair;

/// By group.
pub(super) struct Origins(Vec<Incarnation>);

impl Origins {
    pub(super) fn new(groups: usize) -> Self {
        Origins(vec![Incarnation::NONE; groups])
    }

    #[inline]
    pub(super) fn note(&mut self, group: GroupId, origin: Incarnation) {
        if let Some(known) = self.0.get_mut(usize::from(group.0)) {
            *known = origin;
        }
    }

    /// Returns what was told of a group.
    pub(super) fn of(&self, group: GroupId) -> Option<Incarnation> {
        self.0.get(usize::from(group.0)).copied().filter(|origin| !origin.is_none())
    }

    /// Returns whether a group's history began in another incarnation than the one that a session uses.
    pub(super) fn differ(&self, group: GroupId, pairs: &[Pair]) -> bool {
        let other = |told| pairs.iter().any(|pair| pair.group == group && pair.incarnation != told);
        self.of(group).is_some_and(other)
    }
}
