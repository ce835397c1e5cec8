//! Which parts of the promise are in force.

/// Which parts of the promise are in force. All of them are, but while a counter-example is being named.
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
