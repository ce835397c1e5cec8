//! The register arrays, in the order of the pipeline's stages, and the only access to them.
//!
//! A pass walks through the stages once. Each stage is a separate type. Touching its array consumes the stage and
//! returns the next one, so a pass cannot touch an array twice or out of order:
//!
//! ```
//! use stentor_switch::registers::{Arrays, Stage};
//! let mut arrays = Arrays::new(1);
//! let stage = Stage::enter(&mut arrays, 0).unwrap();
//! let (done, stage) = stage.ranks(3, |rank| rank.done);
//! let (state, _) = stage.sessions(|session| session.state);
//! # let _ = (done, state);
//! ```
//!
//! ```compile_fail,E0382
//! use stentor_switch::registers::{Arrays, Stage};
//! let mut arrays = Arrays::new(1);
//! let stage = Stage::enter(&mut arrays, 0).unwrap();
//! let (a, _) = stage.ranks(3, |rank| rank.done);
//! let (b, _) = stage.ranks(4, |rank| rank.done); // the same array again
//! ```
//!
//! ```compile_fail,E0599
//! use stentor_switch::registers::{Arrays, Stage};
//! let mut arrays = Arrays::new(1);
//! let stage = Stage::enter(&mut arrays, 0).unwrap();
//! let (_, stage) = stage.ranks(3, |rank| rank.done);
//! let (_, stage) = stage.sessions(|session| session.state);
//! stage.ranks(3, |rank| rank.done); // a stage that is behind
//! ```

use core::net::Ipv4Addr;

use stentor_wire::Psn;

use crate::cell::cell;

/// Maximum number of members of a set.
pub const MOST: usize = 32;
/// Width of a rank, in bits.
const RANK_BITS: u32 = 5;

/// State of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// The set was removed, or has not been created since the switch started. The switch answers no packet of the set,
    /// because any answer might be wrong.
    #[default]
    Silent,
    /// No rank holds the set.
    Free,
    /// A control packet is being executed, member by member.
    Linking,
    /// The holder's messages are replicated.
    Active,
    /// Some members may have executed packets that other members have not. Only the control plane can repair the set.
    Poisoned,
}

cell! {
    /// A rank as a sender: the host that may send as this rank, and its done PSN while it does not hold the set.
    Rank {
        /// Address of the host; unspecified if the rank does not exist.
        ip: u32 = 32,
        /// Number of the host's sending queue pair.
        sqpn: u32 = 24,
        /// Done PSN: all packets of the rank up to this PSN were executed by the members that they were for. For the
        /// holder, this value is out of date: see [`Progress::last`].
        done: Psn = 24,
        /// Number of messages up to the done PSN.
        done_msn: u32 = 24,
    }
}

cell! {
    /// The virtual receiving queue pair (VRQP): the holder of the set, and the members that receive its messages.
    Session {
        /// State of the set.
        state: State = 3,
        /// Existing ranks, as a bit mask.
        known: u32 = 32,
        /// Duration of a lease, in units of 65.536 µs.
        lease: u32 = 32,
        /// Rank of the holder.
        holder: u8 = RANK_BITS,
        /// Address of the holder.
        sip: u32 = 32,
        /// Queue pair of the holder.
        sqpn: u32 = 24,
        /// UDP source port of the holder's last LINK or query. Answers to the holder have the same source port, unless
        /// [`Config::source_ports`](crate::Config::source_ports) is set.
        sport: u16 = 16,
        /// Session id that the holder chose.
        lock_id: u32 = 32,
        /// Number of LINKs, and of holders' queries, that were executed since the set was created.
        epoch: u32 = 32,
        /// Time at which the holder's lease was last renewed, in units of 65.536 µs.
        heard: u32 = 32,
        /// PSN of the last LINK or holder's query that was executed or is being executed.
        pend: Psn = 24,
        /// Number of members.
        n: u8 = RANK_BITS + 1,
        /// Members as a bit mask of ranks.
        mask: u32 = 32,
        /// Ranks of the members, in the order of the passes.
        slots: [u8; MOST] = RANK_BITS * MOST as u32,
        /// The holder's PSN at which the next replication begins.
        top: Psn = 24,
        /// `true` if `top` is inside a message.
        mid: bool = 1,
    }
}

cell! {
    /// A virtual sending queue pair (VSQP): one receiver.
    Member {
        /// Address of the host. Packets never change it.
        ip: u32 = 32,
        /// Number of the host's receiving queue pair. Packets never change it.
        qpn: u32 = 24,
        /// Offset that is added to the addresses of WRITEs.
        base: u64 = 64,
        /// Key for WRITEs.
        rkey: u32 = 32,
        /// Next PSN, in the holder's numbers.
        psn_in: Psn = 24,
        /// Next PSN, in the receiver's numbers. Control packets never change it.
        psn_out: Psn = 24,
        /// Number of messages before the next one, in the holder's numbers.
        msn_in: u32 = 24,
        /// Number of messages before the next one, in the receiver's numbers. Control packets never change it.
        msn_out: u32 = 24,
        /// The epoch for which the member was linked.
        version: u32 = 32,
    }
}

cell! {
    /// Acknowledgement of one member, in the holder's numbers.
    Acked {
        /// Last acknowledged PSN.
        psn: Psn = 24,
        /// Number of messages up to that PSN.
        msn: u32 = 24,
    }
}

cell! {
    /// Acknowledgement of all members together.
    Progress {
        /// Last PSN that all members have acknowledged, in the holder's numbers.
        last: Psn = 24,
        /// Number of messages up to that PSN.
        last_msn: u32 = 24,
        /// `true` if the switch has sent the holder a NAK and has not copied a packet to all members since.
        complained: bool = 1,
        /// Longest RNR timer since `last` advanced, as its rank by duration. It is 0, the shortest timer, if there was
        /// none.
        rnr: u8 = 5,
        /// `RoundBitmap`: members that have acknowledged in this round.
        bitmap: u32 = 32,
        /// `RoundBitmap`: smallest PSN of this round.
        round: Psn = 24,
        /// `RoundBitmap`: number of messages up to that PSN.
        round_msn: u32 = 24,
    }
}

cell! {
    /// State of the rate limit for congestion notifications.
    Notice {
        /// Time of the last notification to the holder, in units of 65.536 µs.
        at: u32 = 32,
        /// `true` if a notification has been sent.
        ever: bool = 1,
    }
}

/// All register arrays. The bank `acked` consists of 32 arrays, one for each rank, so that the minimum over all members
/// takes one access to each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Arrays {
    ranks: Vec<Rank>,
    sessions: Vec<Session>,
    members: Vec<Member>,
    acked: Vec<[Acked; MOST]>,
    progress: Vec<Progress>,
    notices: Vec<Notice>,
}

impl Arrays {
    /// Creates zeroed arrays, as after a start: every set is silent.
    #[must_use]
    pub fn new(sets: usize) -> Arrays {
        Arrays {
            ranks: vec![Rank::default(); sets * MOST],
            sessions: vec![Session::default(); sets],
            members: vec![Member::default(); sets * MOST],
            acked: vec![[Acked::default(); MOST]; sets],
            progress: vec![Progress::default(); sets],
            notices: vec![Notice::default(); sets],
        }
    }

    /// Returns the number of sets that the arrays have room for.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the size of all cells, in bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        let cells = [
            (self.ranks.len(), Rank::BITS),
            (self.sessions.len(), Session::BITS),
            (self.members.len(), Member::BITS),
            (self.acked.len() * MOST, Acked::BITS),
            (self.progress.len(), Progress::BITS),
            (self.notices.len(), Notice::BITS),
        ];
        cells.iter().map(|(cells, bits)| *cells as u64 * u64::from(*bits)).sum()
    }

    /// Returns the registers of a set for the control plane, which is not bound to passes.
    #[must_use]
    pub fn view(&self, gid: u16) -> Option<View<'_>> {
        let at = usize::from(gid);
        let members = at * MOST..(at + 1) * MOST;
        Some(View {
            session: self.sessions.get(at)?,
            progress: self.progress.get(at)?,
            ranks: self.ranks.get(members.clone())?.first_chunk()?,
            members: self.members.get(members)?.first_chunk()?,
            acked: self.acked.get(at)?,
            notice: self.notices.get(at)?,
        })
    }

    /// Replaces or clears the registers of a set, as the control plane does.
    pub(crate) fn put(&mut self, gid: u16, session: Session, hosts: &[(Rank, Member); MOST]) {
        let at = usize::from(gid);
        if at >= self.sessions.len() {
            return;
        }
        self.sessions[at] = session;
        self.progress[at] = Progress::default();
        self.notices[at] = Notice::default();
        self.acked[at] = [Acked::default(); MOST];
        for (index, (rank, member)) in hosts.iter().enumerate() {
            self.ranks[at * MOST + index] = *rank;
            self.members[at * MOST + index] = *member;
        }
    }
}

/// A read-only view of one set's registers.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The VRQP.
    pub session: &'a Session,
    /// The aggregate.
    pub progress: &'a Progress,
    /// Senders, by rank.
    pub ranks: &'a [Rank; MOST],
    /// VSQPs, by rank.
    pub members: &'a [Member; MOST],
    /// Acknowledgements, by rank.
    pub acked: &'a [Acked; MOST],
    /// State of the rate limit for congestion notifications.
    pub notice: &'a Notice,
}

impl View<'_> {
    /// Returns the done PSN of a rank and its message count, whether or not the rank holds the set.
    #[must_use]
    pub fn done(&self, rank: u8) -> (Psn, u32) {
        let own = &self.ranks[usize::from(rank) % MOST];
        if self.session.is_held_by(rank) {
            (self.progress.last, self.progress.last_msn)
        } else {
            (own.done, own.done_msn)
        }
    }
}

impl Session {
    /// Returns whether this rank holds the set, so that its done PSN is in [`Progress`].
    #[inline]
    #[must_use]
    pub fn is_held_by(&self, rank: u8) -> bool {
        matches!(self.state, State::Linking | State::Active | State::Poisoned) && self.holder == rank
    }

    /// Returns whether a rank is a member.
    #[inline]
    #[must_use]
    pub fn has(&self, rank: u8) -> bool {
        self.mask >> (rank & 31) & 1 == 1
    }
}

/// A position in the pipeline: before the arrays of stage `S`.
#[derive(Debug)]
pub struct Stage<'a, const S: usize> {
    arrays: &'a mut Arrays,
    gid: usize,
}

impl<'a> Stage<'a, 0> {
    /// Returns the first stage for one set, or `None` if the arrays have no room for such a set.
    #[inline]
    pub fn enter(arrays: &'a mut Arrays, gid: u16) -> Option<Stage<'a, 0>> {
        let gid = usize::from(gid);
        (gid < arrays.sets()).then_some(Stage { arrays, gid })
    }
}

macro_rules! stages {
    ($($stage:literal => $next:literal, $name:ident, $skip:ident, $doc:literal, ($($rank:ident)?) $cell:ty, $find:expr;)*) => {
        $(impl<'a> Stage<'a, $stage> {
            #[doc = $doc]
            #[inline]
            pub fn $name<R>(self, $($rank: u8,)? f: impl FnOnce(&mut $cell) -> R) -> (R, Stage<'a, $next>) {
                let find: fn(&mut Arrays, usize, usize) -> &mut $cell = $find;
                let rank = 0_usize $(+ usize::from($rank) % MOST)?;
                let result = f(find(self.arrays, self.gid, rank));
                (result, Stage { arrays: self.arrays, gid: self.gid })
            }

            /// Skips the stage without touching its array.
            #[inline]
            #[must_use]
            pub fn $skip(self) -> Stage<'a, $next> {
                Stage { arrays: self.arrays, gid: self.gid }
            }
        })*
    };
}

stages! {
    0 => 1, ranks, no_ranks, "Touches the cell of a rank as a sender.", (rank) Rank, |all, gid, rank| &mut all.ranks[gid * MOST + rank];
    1 => 2, sessions, no_sessions, "Touches the VRQP.", () Session, |all, gid, _| &mut all.sessions[gid];
    2 => 3, members, no_members, "Touches a VSQP.", (rank) Member, |all, gid, rank| &mut all.members[gid * MOST + rank];
    3 => 4, acked, no_acked, "Touches each of the 32 arrays of acknowledgements.", () [Acked; MOST], |all, gid, _| &mut all.acked[gid];
    4 => 5, progress, no_progress, "Touches the aggregate.", () Progress, |all, gid, _| &mut all.progress[gid];
    5 => 6, notices, no_notices, "Touches the time of the last congestion notification.", () Notice, |all, gid, _| &mut all.notices[gid];
}

/// Returns an address in the form of a register.
#[inline]
pub(crate) fn word(ip: Ipv4Addr) -> u32 {
    ip.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_do_not_share_cells() {
        let mut arrays = Arrays::new(3);
        let before = arrays.clone();
        let hosts = std::array::from_fn(|rank| {
            let at = rank as u32 + 1;
            (Rank { sqpn: at, ..Rank::default() }, Member { qpn: 100 + at, ..Member::default() })
        });
        arrays.put(3, Session { state: State::Free, ..Session::default() }, &hosts);
        assert_eq!(arrays, before, "the arrays have no room for set 3");
        arrays.put(1, Session { state: State::Free, known: 5, ..Session::default() }, &hosts);
        let view = arrays.view(1).expect("a set");
        assert_eq!((view.session.state, view.session.known), (State::Free, 5));
        for rank in 0..MOST {
            assert_eq!((view.ranks[rank].sqpn, view.members[rank].qpn), (rank as u32 + 1, rank as u32 + 101));
        }
        for other in [0, 2] {
            assert_eq!(arrays.view(other).expect("a set").session, &Session::default());
            assert_eq!(arrays.view(other).expect("a set").members, &[Member::default(); MOST]);
        }
        assert!(arrays.view(3).is_none());
        assert!(Stage::enter(&mut arrays, 2).is_some() && Stage::enter(&mut arrays, 3).is_none());
    }

    #[test]
    fn done_psn_of_the_holder_is_the_aggregate() {
        let mut arrays = Arrays::new(1);
        arrays.sessions[0] = Session { state: State::Active, holder: 3, ..Session::default() };
        (arrays.progress[0].last, arrays.progress[0].last_msn) = (Psn::new(9), 8);
        (arrays.ranks[2].done, arrays.ranks[2].done_msn) = (Psn::new(5), 4);
        let view = arrays.view(0).expect("a set");
        assert_eq!((view.done(3), view.done(2)), ((Psn::new(9), 8), (Psn::new(5), 4)));
    }
}
