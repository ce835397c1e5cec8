//! The IPv4 identification of packets that arrive without their IP header.
//!
//! A kernel that splits a run numbers its packets from 0, and a single packet has the identification 0. Within one host
//! a run arrives as it was sent. The position of a packet in its datagram is then its identification, and the ICRC is
//! checked completely. A network card transmits single packets, and the receiver may join them differently: a run in
//! parts, or several runs as one datagram. Such a path is detected when a packet matches a position other than the one
//! at which it arrived. That packet is dropped like a damaged one, and the requester retransmits it. Afterwards,
//! packets from that peer may have the identification 0, or the one after that of the previous packet. After a lost
//! packet, the next packet of the run is dropped, but it re-establishes the position in the run.
//!
//! On such a path, damage therefore passes only if it looks like one of these two identifications. If [`PATIENCE`]
//! undamaged packets in succession match their positions, the path counts as straight again: packets must match their
//! positions.

use std::net::IpAddr;

use stentor_wire::icrc::RunIds;

/// Number of consecutive packets that must match their positions before a path counts as straight again.
const PATIENCE: u16 = 4096;

/// The paths on which runs are split and joined.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Places {
    /// The ICRC differences between identifications, for packets of the last mismatch's length.
    ids: RunIds,
    /// The paths that are not straight, at most one per peer address.
    ways: Vec<Way>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Way {
    from: IpAddr,
    /// Identification of the next packet, if it belongs to the same run as the last one.
    next: u16,
    /// Number of matching packets that are still needed for the path to count as straight.
    patience: u16,
}

impl Places {
    /// Returns whether all paths are straight: every packet has the identification of its position.
    #[inline]
    pub(super) fn are_straight(&self) -> bool {
        self.ways.is_empty()
    }

    /// Returns whether a packet is undamaged. `place` is the identification that follows from its position, `computed`
    /// its ICRC with that identification, and `icrc` the ICRC in the packet.
    pub(super) fn fits(
        &mut self,
        from: IpAddr,
        transport_bytes: usize,
        place: u16,
        (computed, icrc): (u32, u32),
    ) -> bool {
        let Places { ids, ways } = self;
        let found = if computed == icrc {
            Some(place)
        } else {
            ids.fit(transport_bytes);
            (usize::from(place) < RunIds::MOST).then(|| ids.find(ids.change(computed, place.into()), icrc)).flatten()
        };
        let at = ways.iter().position(|way| way.from == from);
        let (Some(at), Some(id)) = (at, found) else {
            if let Some(at) = at {
                // The packet is damaged. Assume that it belonged to the run, so that the next packet has the following
                // identification.
                ways[at].next = ways[at].next.saturating_add(1);
            } else if let Some(id) = found.filter(|id| *id != place) {
                ways.push(Way { from, next: id + 1, patience: PATIENCE });
            }
            return found == Some(place);
        };
        let way = &mut ways[at];
        let is_expected = id == 0 || id == way.next;
        way.next = id + 1;
        way.patience = if id == place { way.patience - 1 } else { PATIENCE };
        if way.patience == 0 {
            ways.swap_remove(at);
        }
        is_expected
    }
}
