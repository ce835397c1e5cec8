//! Counters of an endpoint, by cause.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        /// Counters of one endpoint since its creation. A dropped packet is counted once, under the first cause found.
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
    /// Packets made.
    sent;
    /// Packets received, including dropped ones.
    received;
    /// Dropped: not a valid packet.
    malformed;
    /// Dropped: wrong ICRC.
    bad_icrc;
    /// Dropped: unknown queue pair.
    unknown_qp;
    /// Dropped: the queue pair is not ready to receive.
    not_ready;
    /// Dropped: from another address than the queue pair's peer.
    wrong_source;
    /// Dropped: another partition.
    wrong_pkey;
    /// Dropped: an opcode of another transport service than the queue pair's.
    wrong_service;
    /// Dropped: acknowledges or answers a request that was never sent.
    ghost_responses;
    /// Dropped: acknowledges or answers a request that was acknowledged before.
    stale_responses;
    /// Dropped: a READ response or atomic acknowledgement with a wrong length or for another operation.
    wrong_responses;
    /// Duplicate requests, which were acknowledged or answered again.
    duplicates;
    /// Dropped: a duplicate request whose response is no longer kept.
    unrepeatable;
    /// Dropped: requests after a missing one.
    out_of_order;
    /// Dropped: repeated READs and atomics beyond the number that the queue pair answers at a time.
    overload;
    /// Requests refused as invalid.
    invalid_requests;
    /// Requests refused for key, bounds or rights.
    access_errors;
    /// Requests refused because of a local fault: the memory of the posted receive is no longer registered.
    operational_errors;
    /// "Receiver not ready" NAKs sent.
    rnr_sent;
    /// "Receiver not ready" NAKs received.
    rnr_received;
    /// Dropped: no receive is posted, on an unreliable connection.
    no_receive;
    /// Sequence errors sent.
    sequence_naks_sent;
    /// Sequence errors received.
    sequence_naks_received;
    /// Requests sent again.
    retransmitted;
    /// Last requests sent again as probes for the peer's progress.
    probes;
    /// Transport timeouts.
    timeouts;
    /// Received packets that encountered congestion.
    congested;
    /// Congestion notifications sent.
    cnp_sent;
    /// Congestion notifications received.
    cnp_received;
}
