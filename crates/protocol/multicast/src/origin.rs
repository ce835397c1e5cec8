//! The points at which a history of a group's state began, and the deliveries that each reset kept.

use crate::Incarnation;

/// One beginning of a history: the group was founded or reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// The incarnation that began.
    pub incarnation: Incarnation,
    /// Number of deliveries of the previous history that this one keeps; 0 if the group was founded, or reset to an
    /// empty state.
    pub kept: u64,
}

/// Returns the number of deliveries that two histories certainly have in common.
///
/// Each history is given by its beginnings, the oldest first. The result is [`u64::MAX`] if the two lists are equal and
/// not empty.
pub(crate) fn common(one: &[Origin], other: &[Origin]) -> u64 {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    if same == 0 {
        return 0;
    }
    let kept = |history: &[Origin]| history.get(same).map_or(u64::MAX, |next| next.kept);
    kept(one).min(kept(other))
}

/// Returns the incarnation in which the history of delivery `number` began, or [`Incarnation::NONE`] if there is no
/// beginning before it. The beginnings are sorted, the oldest first.
#[inline]
pub(crate) fn of_delivery(beginnings: &[Origin], number: u64) -> Incarnation {
    beginnings.iter().rfind(|origin| origin.kept < number).map_or(Incarnation::NONE, |origin| origin.incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_kept_by_a_reset_belong_to_the_previous_history() {
        let begun = |number, kept| Origin { incarnation: Incarnation { number, tag: number }, kept };
        let beginnings = [begun(1, 0), begun(3, 40), begun(4, 40)];
        let origin = |number| of_delivery(&beginnings, number).number;
        assert_eq!([origin(1), origin(40), origin(41), origin(u64::MAX)], [1, 1, 4, 4]);
        assert!(of_delivery(&[], 1).is_none());
    }

    #[test]
    fn histories_diverge_where_only_one_was_reset() {
        let begun = |number, kept| Origin { incarnation: Incarnation { number, tag: number }, kept };
        let (founded, reset, again) = (begun(1, 0), begun(2, 40), begun(3, 45));
        assert_eq!(common(&[founded], &[founded]), u64::MAX);
        assert_eq!(common(&[founded], &[founded, reset, again]), 40);
        assert_eq!(common(&[founded, reset], &[founded, reset, again]), 45);
        assert_eq!(common(&[founded, reset], &[founded, again]), 40);
        assert_eq!(common(&[founded], &[begun(4, 0)]), 0, "founded again");
        assert_eq!(common(&[founded], &[]), 0);
    }
}
