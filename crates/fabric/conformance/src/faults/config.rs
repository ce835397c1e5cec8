//! What a [`FaultInjector`](super::FaultInjector) does.

/// What a [`FaultInjector`](super::FaultInjector) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Decides everything.
    pub seed: u64,
    /// Completions are held back for up to so many polls, each for itself; 0: not at all, and in their order.
    pub hold_polls: u32,
    /// Tagged sends, and WRITE_WITH_IMMs where writes have no order, are posted in another order: for fabrics that do not
    /// promise send-after-send.
    pub arrivals: bool,
    /// How many completions are kept until they are polled; what is beyond is lost, or the end of everything if also what is
    /// not signalled completes ([`all_complete`](Faults::all_complete)).
    pub max_completions: u32,
    /// Signalled WRITEs and WRITE_WITH_IMMs are posted in another order, and the capabilities say that writes have none; the
    /// others, too, where all complete.
    pub writes: bool,
    /// The capabilities say that there are no tagged messages.
    pub untagged: bool,
    /// The longest inline source, bytes, if the fabric has as much; 0: data is posted from registered memory.
    pub inline_bytes: u32,
    /// Every request completes and takes a place among the completions that are kept, whether it is signalled or not. Who
    /// polls is told of the signalled ones only, each when all before it that are not signalled have been taken. Who has more
    /// outstanding, receives included, than there are places for completions has overrun the queue, as if all had completed
    /// at once: everything fails with [`Status::QueueOverrun`](stentor_fabric::Status::QueueOverrun), and nothing can be posted, made
    /// or reset any more.
    pub all_complete: bool,
}

impl Faults {
    /// Completions in any order, nothing else.
    #[must_use]
    pub fn completions(seed: u64) -> Self {
        Faults {
            seed,
            hold_polls: 8,
            arrivals: false,
            max_completions: u32::MAX,
            writes: false,
            untagged: false,
            inline_bytes: u32::MAX,
            all_complete: false,
        }
    }

    /// What EFA leaves: no order but that of sends, completions in any order and of everything, a completion queue that
    /// nothing protects, no inline data. Without `tags` as its provider `efa-direct`.
    #[must_use]
    pub fn efa(seed: u64, max_completions: u32, tags: bool) -> Self {
        Faults {
            max_completions,
            writes: true,
            untagged: !tags,
            inline_bytes: 0,
            all_complete: true,
            ..Faults::completions(seed)
        }
    }
}
