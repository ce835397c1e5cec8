//! What happened, by cause.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident;)+) => {
        /// Counts of one endpoint, from its beginning. What is dropped is counted once, under the first cause found.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Names and values.
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
    /// Packets taken in, whatever became of them.
    received;
    /// Dropped: not a packet.
    malformed;
    /// Dropped: the ICRC is not right.
    bad_icrc;
    /// Dropped: no such queue pair.
    unknown_qp;
    /// Dropped: the queue pair is not ready to receive.
    not_ready;
    /// Dropped: from another address than the queue pair's peer.
    wrong_source;
    /// Dropped: another partition.
    wrong_pkey;
    /// Dropped: an opcode of another transport service than the queue pair's.
    wrong_service;
    /// Dropped: acknowledges or answers what was never sent.
    ghost_responses;
    /// Dropped: acknowledges or answers what was acknowledged before.
    stale_responses;
    /// Dropped: a READ response or atomic acknowledgement of the wrong length or for another operation.
    wrong_responses;
    /// Requests that came before, acknowledged or answered again.
    duplicates;
    /// Dropped: a request that came before and whose answer is not kept any more.
    unrepeatable;
    /// Dropped: requests behind one that is missing.
    out_of_order;
    /// Dropped: READs and atomics asked for again, more at once than the queue pair answers.
    overload;
    /// Requests refused as wrong in themselves.
    invalid_requests;
    /// Requests refused for key, bounds or rights.
    access_errors;
    /// Requests refused for a reason of this side: the memory of the posted receive is gone.
    operational_errors;
    /// "Receiver not ready" sent.
    rnr_sent;
    /// "Receiver not ready" taken in.
    rnr_received;
    /// Dropped: no receive is posted, on an unreliable connection.
    no_receive;
    /// Sequence errors sent.
    sequence_naks_sent;
    /// Sequence errors taken in.
    sequence_naks_received;
    /// Requests sent again.
    retransmitted;
    /// Last requests sent again to ask how far the peer is.
    probes;
    /// Transport timeouts.
    timeouts;
    /// Packets that met congestion.
    congested;
    /// Congestion notifications sent.
    cnp_sent;
    /// Congestion notifications taken in.
    cnp_received;
}
