//! The origins of the groups' histories, as reported by their replies.

use stentor_multicast::{GroupId, Incarnation};
use stentor_session::Pair;

/// The last reported origin of each group.
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

    /// Returns the origin of a group's history, if a reply has reported it.
    pub(super) fn of(&self, group: GroupId) -> Option<Incarnation> {
        self.0.get(usize::from(group.0)).copied().filter(|origin| !origin.is_none())
    }

    /// Returns whether a group's history has another origin than the incarnation that the session uses.
    pub(super) fn differ(&self, group: GroupId, pairs: &[Pair]) -> bool {
        let other = |told| pairs.iter().any(|pair| pair.group == group && pair.incarnation != told);
        self.of(group).is_some_and(other)
    }
}
