//! Which IPv4 identification a packet had that came without its IP header.
//!
//! A kernel that cuts a run numbers its packets from 0, and what goes by itself has 0. Within one host nobody cuts: a run comes as
//! it went, so the place of a packet in its datagram is its identification, and the ICRC is checked whole. A network card
//! takes packets, not runs; what comes from one may be joined otherwise: a run in parts, or several as one. Such a way
//! gives itself away, because a packet fits another place than it came at. That one is dropped, as a damaged one would
//! be (a requester sends it again), and from then on packets from there may have 0 or the identification behind that of
//! the packet before. Where a packet was lost, the first behind it only says where the run is.
//!
//! So damage must look like one certain other identification to pass, on such ways alone; a way that shows nothing unusual
//! for some time is taken for a straight one again.

use std::net::IpAddr;

use stentor_wire::icrc::RunIds;

/// Packets in a row that fit the place they came at until a way counts as straight again.
const PATIENCE: u16 = 4096;

/// The ways on which runs are cut and joined.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Places {
    /// Of packets as long as the last that did not fit.
    ids: RunIds,
    /// At most one for each peer's address.
    ways: Vec<Way>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Way {
    from: IpAddr,
    /// What the next packet has, if it belongs to the run of the last.
    next: u16,
    /// How many packets that fit their places are missing to be straight.
    patience: u16,
}

impl Places {
    /// Whether every packet is what its place says.
    #[inline]
    pub(super) fn are_straight(&self) -> bool {
        self.ways.is_empty()
    }

    /// Whether a packet came as it was sent. `place` is the identification that it should have by its place, `computed` its
    /// ICRC with that, `icrc` the one that it has.
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
                // Damaged: if it belonged to the run, so does the next.
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
