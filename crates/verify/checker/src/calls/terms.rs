//! The rules that a decision enforces.

/// The rules that a decision enforces. All are enforced, except while a counter-example's rule is being determined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) real_time: bool,
    pub(super) session: bool,
    pub(super) observed: bool,
    pub(super) prefix: bool,
    pub(super) positions: bool,
}

impl Terms {
    pub(super) const ALL: Terms =
        Terms { real_time: true, session: true, observed: true, prefix: true, positions: true };
}
