//! The queue pair with one peer, and the memory that its connections use.

use std::collections::{BTreeMap, BTreeSet};

use stentor_fabric::{ProcessId, QpId, RegionId, RemoteRegion};

/// The queue pair with one peer.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: ProcessId,
    pub(super) qp: QpId,
    /// Where messages are received.
    pub(super) inbox: RegionId,
    /// Where they are sent from.
    pub(super) outbox: RegionId,
    pub(super) is_connected: bool,
    /// The peer's memory for what this end writes, while it is connected, where places are written.
    pub(super) target: Option<RemoteRegion>,
    /// Areas that no connection uses.
    pub(super) free: Vec<u16>,
    /// Areas that the peer may still write into, until the queue pair is connected anew.
    pub(super) withheld: Vec<u16>,
    /// Open connections, by number.
    pub(super) numbers: BTreeMap<u32, u32>,
    /// Numbers under which something may still be under way.
    pub(super) spent: BTreeSet<u32>,
    /// How often numbers were opened.
    pub(super) lives: BTreeMap<u32, u32>,
    /// Greetings of lives that this end has not opened yet, where places are written, by number.
    pub(super) early: BTreeMap<u32, [u64; 8]>,
    /// Requests that the fabric has not completed.
    pub(super) sends: u32,
    /// Receives that any WRITE_WITH_IMM may use, as they were posted and used.
    pub(super) recvs: u32,
    /// As many as connections need.
    pub(super) recvs_needed: u32,
}

impl Link {
    /// Takes an area: with places that the peer must know, the one of the number.
    pub(super) fn take_area(&mut self, wanted: Option<u16>) -> Option<u16> {
        match wanted {
            None => self.free.pop(),
            Some(area) => {
                let place = self.free.iter().position(|free| *free == area)?;
                Some(self.free.swap_remove(place))
            }
        }
    }

    /// The queue pair begins anew: nothing is under way any more.
    pub(super) fn begin_anew(&mut self) {
        self.spent.clear();
        self.lives.clear();
        self.early.clear();
        self.sends = 0;
        self.recvs = 0;
        self.recvs_needed = 0;
    }
}
