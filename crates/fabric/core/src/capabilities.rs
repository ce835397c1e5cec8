//! The capabilities of a fabric. A protocol checks them and never assumes one.

/// The capabilities of a fabric, constant for the life of a [`Fabric`](crate::Fabric).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the fabric: `sim`, `shm`, …
    pub name: &'static str,
    /// `true` if writes on one reliable queue pair take effect in posting order (rule 1). `false` on EFA.
    pub ordered_writes: bool,
    /// `true` if the bytes of one write land in rising address order (rule 2; `ibv_query_qp_data_in_order`).
    pub ordered_bytes: bool,
    /// Maximum length of a [`Source::Inline`](crate::Source::Inline), in bytes.
    pub inline_bytes: u32,
    /// Maximum depth of a send queue, in work requests.
    pub max_send_depth: u32,
    /// Maximum depth of a receive queue, in receives.
    pub max_recv_depth: u32,
    /// Maximum length of a single message or write, in bytes.
    pub max_message_bytes: u64,
    /// Maximum number of outstanding operations for which the completion queue has room. The operations of all queue
    /// pairs count, sends (signalled or not) as well as receives. If more are outstanding, completions may be lost. EFA
    /// loses some of them without notice, because it does not protect its queue. Fabrics that detect the overrun lose
    /// all of them ([`Status::QueueOverrun`](crate::Status::QueueOverrun)). `u32::MAX` if none is ever lost.
    pub max_completions: u32,
    /// `true` if the fabric has 8-byte compare-and-swap and fetch-and-add.
    pub atomics: bool,
    /// `true` if the fabric has unreliable connections.
    pub unreliable: bool,
    /// `true` if the fabric has tagged send and receive with ignore masks.
    pub tagged: bool,
    /// `true` if a tagged receive that ignores bits matches messages that arrived before it was posted. A receive that
    /// ignores no bits always does. `false` on `shm` of libfabric 1.17.
    pub masks_find_early: bool,
    /// `true` if adjacent WRITEs of one reliable queue pair may leave as one WRITE. The fabric merges only WRITEs that
    /// are posted before the first of them has left. In addition, the queue pair must [allow
    /// merging](crate::QpConfig::merges), or bytes must land in order. It then pays to write a record up to the end of
    /// its last cache line, so that the next record adjoins it.
    pub merges_writes: bool,
    /// `true` if a process may connect to itself. One-sided verbs then reach the regions that the process granted to
    /// itself, through the same NIC as those of its peers.
    pub loopback: bool,
    /// `true` if an owner may grant [`Access::Read`](crate::Access::Read) to peers other than the writer of the region.
    pub many_readers: bool,
    /// `true` if the network itself makes the copies of a multicast: [`Fabric::join_set`](crate::Fabric::join_set) and
    /// [`Fabric::post_set`](crate::Fabric::post_set).
    pub hardware_multicast: bool,
    /// `true` if a revocation stops even a peer that ignores the rules. If `false`, such a peer can still write the old
    /// memory, so the owner moves to fresh memory.
    pub revokes_in_hardware: bool,
}

/// Capabilities to hide from a process, which then runs as on a fabric that lacks them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CapabilityMask {
    /// `true` to hide the order of writes, the order of the bytes of one write, and fan-out sets, which depend on the
    /// order.
    pub ordered_writes: bool,
    /// `true` to hide tagged messages.
    pub tagged: bool,
}

impl CapabilityMask {
    /// Returns the mask that hides the capabilities that EFA lacks. If `tags` is `false`, it also hides tagged
    /// messages, which the provider `efa-direct` lacks.
    #[must_use]
    pub fn efa(tags: bool) -> CapabilityMask {
        CapabilityMask { ordered_writes: true, tagged: !tags }
    }

    /// Returns the capabilities that remain after masking.
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
    fn a_mask_hides_the_named_capabilities_and_their_dependents() {
        assert_eq!(CapabilityMask::default().apply(&ALL), ALL);
        let unordered = CapabilityMask::efa(true).apply(&ALL);
        let expected = Capabilities { ordered_writes: false, ordered_bytes: false, hardware_multicast: false, ..ALL };
        assert_eq!(unordered, expected);
        let direct = CapabilityMask::efa(false).apply(&ALL);
        assert_eq!(direct, Capabilities { tagged: false, masks_find_early: false, ..expected });
    }
}
