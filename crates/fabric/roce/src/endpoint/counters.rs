//! Counters of an endpoint, by cause.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        /// Counters of one endpoint since its creation. Most dropped packets are counted once, under the first cause
        /// that is found.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Returns names and values of all counters.
            #[must_use]
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),+]
            }
        }
    };
}

counters! {
    /// Packets created for sending, except congestion notifications.
    sent;
    /// Packets received, including dropped ones.
    received;
    /// Dropped packets that are too short or have an unknown opcode or version.
    malformed;
    /// Dropped packets with a wrong ICRC.
    bad_icrc;
    /// Dropped packets to an unknown queue pair.
    unknown_qp;
    /// Dropped packets that a queue pair does not process in its state.
    not_ready;
    /// Dropped packets from an address that is not the peer's.
    wrong_source;
    /// Dropped packets of another partition.
    wrong_pkey;
    /// Dropped packets with an opcode of another transport service than the queue pair's.
    wrong_service;
    /// Dropped acknowledgements and responses to a request that was never sent.
    ghost_responses;
    /// Dropped acknowledgements and responses to a request that was already acknowledged.
    stale_responses;
    /// Dropped responses that have a wrong length, do not match the operation, or have a reserved syndrome.
    wrong_responses;
    /// Duplicate requests. A reliable connection acknowledges or answers them again; an unreliable one drops them.
    duplicates;
    /// Dropped duplicates of READs and atomics to which no kept response fits.
    unrepeatable;
    /// Dropped requests after a gap, and on unreliable connections other packets of an incomplete message.
    out_of_order;
    /// Dropped repetitions of READs and atomics beyond the number that the queue pair answers at a time.
    overload;
    /// Requests refused as invalid.
    invalid_requests;
    /// Requests refused because of their key, bounds or rights.
    access_errors;
    /// Requests refused because of a local fault: the memory of the posted receive is no longer registered.
    operational_errors;
    /// "Receiver not ready" NAKs sent.
    rnr_sent;
    /// "Receiver not ready" NAKs received.
    rnr_received;
    /// Dropped packets on an unreliable connection for which no receive is posted.
    no_receive;
    /// Sequence error NAKs sent.
    sequence_naks_sent;
    /// Sequence error NAKs received.
    sequence_naks_received;
    /// Request packets sent again, except as probes.
    retransmitted;
    /// Packets sent as probes, which make the peer report its progress.
    probes;
    /// Transport timeouts.
    timeouts;
    /// Received packets that are marked "congestion experienced".
    congested;
    /// Congestion notifications sent.
    cnp_sent;
    /// Congestion notifications received.
    cnp_received;
}
