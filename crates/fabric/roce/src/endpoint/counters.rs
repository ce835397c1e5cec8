//! Counters of an endpoint, by cause.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        /// Counters of one endpoint since its creation. A dropped packet is counted once, under the first cause that is
        /// found.
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
    /// Packets created for sending.
    sent;
    /// Packets received, including dropped ones.
    received;
    /// Dropped packets that are not valid.
    malformed;
    /// Dropped packets with a wrong ICRC.
    bad_icrc;
    /// Dropped packets to an unknown queue pair.
    unknown_qp;
    /// Dropped packets to a queue pair that is not ready to receive.
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
    /// Dropped READ responses and atomic acknowledgements that have a wrong length or do not match the operation.
    wrong_responses;
    /// Duplicate requests that were acknowledged or answered again.
    duplicates;
    /// Dropped duplicates of a request whose response is no longer kept.
    unrepeatable;
    /// Dropped requests that arrived after a gap.
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
    /// Request packets sent again.
    retransmitted;
    /// Probes sent, which ask for the peer's progress by repeating a packet.
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
