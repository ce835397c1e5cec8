//! What a fabric can do. A protocol asks; it never assumes.

/// What a fabric can do, constant for the life of a [`Fabric`](crate::Fabric).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The fabric's name: `sim`, `shm`, …
    pub name: &'static str,
    /// Writes on one reliable queue pair take effect in posting order (rule 1). False on EFA.
    pub ordered_writes: bool,
    /// The bytes of one write land in rising address order (rule 2; `ibv_query_qp_data_in_order`).
    pub ordered_bytes: bool,
    /// The largest [`Source::Inline`](crate::Source::Inline), bytes.
    pub inline_bytes: u32,
    /// The deepest send queue that can be asked for, work requests.
    pub max_send_depth: u32,
    /// The deepest receive queue that can be asked for, receives.
    pub max_recv_depth: u32,
    /// The largest single message or write, bytes.
    pub max_message_bytes: u64,
    /// Operations, sends (signalled or not) and receives of all queue pairs together, whose completions are kept until they
    /// are polled. Who has more outstanding may lose some (EFA does not protect its queue), or all, where that is noticed
    /// ([`Status::QueueOverrun`](crate::Status::QueueOverrun)). `u32::MAX` where none are ever lost.
    pub max_completions: u32,
    /// 8-byte compare-and-swap and fetch-and-add.
    pub atomics: bool,
    /// Unreliable connections.
    pub unreliable: bool,
    /// Tagged send and receive with ignore masks.
    pub tagged: bool,
    /// A tagged receive that ignores bits finds a message that came before it was posted, as one that ignores none always
    /// does. False on `shm` of libfabric 1.17.
    pub masks_find_early: bool,
    /// WRITEs of one reliable queue pair that adjoin leave as one, if they are posted before the first of them has left, and
    /// either the queue pair [allows it](crate::QpConfig::merges) or bytes land in order. Then a record is best written up to
    /// the end of its last line, so that the next one adjoins.
    pub merges_writes: bool,
    /// A process may connect to itself: then one-sided verbs reach the regions that it granted to itself, through the
    /// same NIC as everybody else's.
    pub loopback: bool,
    /// Peers beside the one that a region is for may be granted [`Access::Read`](crate::Access::Read).
    pub many_readers: bool,
    /// The network itself makes the copies of a multicast: [`Fabric::join_set`](crate::Fabric::join_set) and
    /// [`Fabric::post_set`](crate::Fabric::post_set).
    pub hardware_multicast: bool,
    /// Revoking access also takes away the mapping of a peer that ignores the rules. Where this is false the owner
    /// moves to fresh memory instead.
    pub revokes_in_hardware: bool,
}

/// What is hidden of a fabric's capabilities: a process runs as on a fabric that has less.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CapabilityMask {
    /// Hides the order of writes, that of the bytes of one write, and sets, which need it.
    pub ordered_writes: bool,
    /// Hides tagged messages.
    pub tagged: bool,
}

impl CapabilityMask {
    /// Hides what EFA does not have. Without `tags` as its provider `efa-direct`.
    #[must_use]
    pub fn efa(tags: bool) -> CapabilityMask {
        CapabilityMask { ordered_writes: true, tagged: !tags }
    }

    /// Returns what is left of some capabilities.
    #[must_use]
    pub fn apply(self, all: &Capabilities) -> Capabilities {
        Capabilities {
            ordered_writes: all.ordered_writes && !self.ordered_writes,
            ordered_bytes: all.ordered_bytes && !self.ordered_writes,
            hardware_multicast: all.hardware_multicast && !self.ordered_writes,
            tagged: all.tagged && !self.tagged,
            masks_find_early: all.masks_find_early && !self.tagged,
            ..all.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Capabilities = Capabilities {
        name: "all",
        ordered_writes: true,
        ordered_bytes: true,
        inline_bytes: 64,
        max_send_depth: 16,
        max_recv_depth: 16,
        max_message_bytes: 4096,
        max_completions: 100,
        atomics: true,
        unreliable: true,
        tagged: true,
        masks_find_early: true,
        merges_writes: true,
        loopback: true,
        many_readers: true,
        hardware_multicast: true,
        revokes_in_hardware: true,
    };

    #[test]
    fn a_mask_hides_what_it_names_and_what_depends_on_that() {
        assert_eq!(CapabilityMask::default().apply(&ALL), ALL);
        let unordered = CapabilityMask::efa(true).apply(&ALL);
        let expected = Capabilities { ordered_writes: false, ordered_bytes: false, hardware_multicast: false, ..ALL };
        assert_eq!(unordered, expected);
        let direct = CapabilityMask::efa(false).apply(&ALL);
        assert_eq!(direct, Capabilities { tagged: false, masks_find_early: false, ..expected });
    }
}
