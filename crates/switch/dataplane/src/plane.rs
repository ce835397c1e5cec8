//! The control plane, which creates and removes sets.

use core::net::Ipv4Addr;
use std::time::Duration;

use stentor_wire::Psn;
use thiserror::Error;

use crate::registers::{MOST, Member, Rank, Session, State, word};
use crate::step::{Switch, ticks};

/// A queue pair of a host, connected to the switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attachment {
    /// Address of the host.
    pub ip: Ipv4Addr,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// First PSN. For a sending queue pair, the PSN of the first packet that the host sends. For a receiving queue
    /// pair, the PSN of the first packet that the host expects.
    pub first_psn: Psn,
}

/// A host of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// The queue pair that the host sends with, connected to [`Switch::vrqpn`].
    pub sends: Attachment,
    /// The queue pair that the host receives with, connected to [`Switch::vsqpn`].
    pub receives: Attachment,
}

/// Reason why a set cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CreateError {
    /// The number is beyond the registers of the switch.
    #[error("set {gid}: this switch has room for {sets}, numbered from 0")]
    Set {
        /// The requested number.
        gid: u16,
        /// Number of sets that the switch has room for.
        sets: usize,
    },
    /// The set has no host or too many ranks. The value is the number of ranks.
    #[error("{0} hosts: a set has 1 to {MOST}")]
    Hosts(usize),
    /// A host has no address.
    #[error("the host of rank {0} has no address")]
    NoAddress(usize),
}

impl Switch {
    /// Returns the number of the virtual queue pair, at the switch's forward address, to which the sending queue pair
    /// of a rank is connected. The number contains the rank because packets of reliable connections do not name their
    /// source queue pair.
    #[must_use]
    pub const fn vrqpn(gid: u16, rank: u8) -> u32 {
        (gid as u32) << 8 | rank as u32
    }

    /// Returns the number of the virtual queue pair, at the switch's backward address, to which the receiving queue
    /// pair of a rank is connected.
    #[must_use]
    pub const fn vsqpn(gid: u16, rank: u8) -> u32 {
        Switch::vrqpn(gid, rank)
    }

    /// Creates a set, or replaces it after its hosts have created new queue pairs.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(&mut self, gid: u16, lease: Duration, hosts: &[Host]) -> Result<(), CreateError> {
        self.create_of(gid, lease, hosts.iter().map(Some), hosts.len())
    }

    /// Creates a set in which some ranks have no host. These ranks can neither send nor be linked.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create_some(&mut self, gid: u16, lease: Duration, hosts: &[Option<Host>]) -> Result<(), CreateError> {
        self.create_of(gid, lease, hosts.iter().map(Option::as_ref), hosts.len())
    }

    fn create_of<'a>(
        &mut self,
        gid: u16,
        lease: Duration,
        hosts: impl Iterator<Item = Option<&'a Host>> + Clone,
        ranks: usize,
    ) -> Result<(), CreateError> {
        let sets = self.arrays().sets();
        if usize::from(gid) >= sets {
            return Err(CreateError::Set { gid, sets });
        }
        if ranks > MOST || hosts.clone().flatten().next().is_none() {
            return Err(CreateError::Hosts(ranks));
        }
        let (mut cells, mut known) = ([(Rank::default(), Member::default()); MOST], 0);
        for (rank, (cell, host)) in cells.iter_mut().zip(hosts).enumerate() {
            let Some(Host { sends, receives }) = host else { continue };
            if sends.ip.is_unspecified() || receives.ip.is_unspecified() {
                return Err(CreateError::NoAddress(rank));
            }
            known |= 1 << rank;
            let sender =
                Rank { ip: word(sends.ip), sqpn: sends.qpn & 0xff_ffff, done: sends.first_psn.minus(1), done_msn: 0 };
            let member = Member {
                ip: word(receives.ip),
                qpn: receives.qpn & 0xff_ffff,
                psn_out: receives.first_psn,
                ..Member::default()
            };
            *cell = (sender, member);
        }
        let nanoseconds = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let session = Session { state: State::Free, known, lease: ticks(nanoseconds), ..Session::default() };
        self.arrays_mut().put(gid, session, &cells);
        Ok(())
    }

    /// Removes a set, which is silent afterwards.
    pub fn remove(&mut self, gid: u16) {
        self.arrays_mut().put(gid, Session::default(), &[(Rank::default(), Member::default()); MOST]);
    }

    /// Acts like a power cycle: clears all registers and counters. Every set is silent until it is created again,
    /// because any answer might be wrong.
    pub fn restart(&mut self) {
        *self = Switch::new(self.config, self.arrays().sets());
    }
}
