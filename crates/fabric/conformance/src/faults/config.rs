//! The configuration of a [`FaultInjector`](super::FaultInjector).

/// The faults that a [`FaultInjector`](super::FaultInjector) injects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Seed of all random choices.
    pub seed: u64,
    /// Maximum number of polls until a completion is reported, including the poll that collects it from the fabric. The
    /// number is drawn for each completion. If the maximum is 0, no completion is held back, and completions are not
    /// reordered.
    pub hold_polls: u32,
    /// `true` to reorder signalled tagged sends before they are posted, and also WRITE_WITH_IMMs if writes have no
    /// order. This emulates fabrics that do not promise send-after-send.
    pub arrivals: bool,
    /// Maximum number of completions that are kept until they are polled. Further completions are lost. With
    /// [`all_complete`](Faults::all_complete), exceeding this number overruns the queue instead.
    pub max_completions: u32,
    /// `true` to reorder signalled WRITEs and WRITE_WITH_IMMs before they are posted, and to hide the order of writes
    /// from the capabilities. With `all_complete`, unsignalled ones are reordered, too.
    pub writes: bool,
    /// `true` to hide tagged messages from the capabilities.
    pub untagged: bool,
    /// Maximum length of inline data in bytes, at most that of the fabric. 0 forces all data into registered memory.
    pub inline_bytes: u32,
    /// `true` if every request completes and occupies a slot of the completion queue, whether it is signalled or not.
    /// Polling reports all failures. It reports the successes of signalled requests only, each after all unsignalled
    /// requests before it on its queue pair have been removed from the queue.
    ///
    /// A process with more outstanding requests and receives than `max_completions` has overrun the queue, as if all
    /// had completed at once. Everything then fails with
    /// [`Status::QueueOverrun`](stentor_fabric::Status::QueueOverrun), and nothing can be posted, created or reset any
    /// more.
    pub all_complete: bool,
}

impl Faults {
    /// Returns faults that only reorder completions.
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

    /// Returns the faults that emulate EFA: only sends are ordered, completions come in any order, every request
    /// occupies a slot of the completion queue, this queue can overrun, and there is no inline data. Without `tags` the
    /// faults emulate the provider `efa-direct`.
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
