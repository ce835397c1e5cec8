//! The register arrays, in the order of the pipeline's stages, and the only way to them.
//!
//! A pass walks through the stages once. Each stage is a type of its own, and touching its array consumes it and gives the
//! next one; so no array can be touched twice in a pass, or out of order:
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

/// Members of a set at most.
pub const MOST: usize = 32;
/// What [`MOST`] takes, bits.
const RANK_BITS: u32 = 5;

/// What a set is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// Not created since the switch started: nobody gets an answer, because any might be a false one.
    #[default]
    Silent,
    /// Nobody holds it.
    Free,
    /// A control packet is being carried out, member by member.
    Linking,
    /// The holder's messages are replicated.
    Active,
    /// Some members may have executed what others have not; only the control plane helps.
    Poisoned,
}

cell! {
    /// What is done of a rank that does not hold the set, for ever; and who may send as that rank.
    Rank {
        /// Address of the host; unspecified if there is no such rank.
        ip: u32 = 32,
        /// Its sending queue pair.
        sqpn: u32 = 24,
        /// Everything up to here was executed by whom it was for. Behind the truth for the holder: see [`Progress::last`].
        done: Psn = 24,
        /// Messages up to there.
        done_msn: u32 = 24,
    }
}

cell! {
    /// VRQP: who holds the set, and which members a message goes to.
    Session {
        /// What the set is doing.
        state: State = 3,
        /// The ranks that there are.
        known: u32 = 32,
        /// How long a lease is, units of 65.536 µs.
        lease: u32 = 32,
        /// Rank of the holder.
        holder: u8 = RANK_BITS,
        /// Its address.
        sip: u32 = 32,
        /// Its queue pair.
        sqpn: u32 = 24,
        /// The UDP source port that it sends from, and is answered from.
        sport: u16 = 16,
        /// The name that it gave the session.
        lock_id: u32 = 32,
        /// Counts sessions' member lists.
        epoch: u32 = 32,
        /// When the holder was last heard of, units of 65.536 µs.
        heard: u32 = 32,
        /// The control packet that is being carried out, or was.
        pend: Psn = 24,
        /// Members.
        n: u8 = RANK_BITS + 1,
        /// Members, by rank.
        mask: u32 = 32,
        /// Members, in the order of the passes.
        slots: [u8; MOST] = RANK_BITS * MOST as u32,
        /// The next PSN of the holder that begins a replication.
        top: Psn = 24,
        /// Whether `top` is inside a message.
        mid: bool = 1,
    }
}

cell! {
    /// VSQP: one receiver.
    Member {
        /// Address of the host; never changed by packets.
        ip: u32 = 32,
        /// Its receiving queue pair; never changed by packets.
        qpn: u32 = 24,
        /// What is added to the addresses of WRITEs.
        base: u64 = 64,
        /// Key of WRITEs.
        rkey: u32 = 32,
        /// Next PSN, as the holder counts.
        psn_in: Psn = 24,
        /// Next PSN, as the receiver counts; never changed by control packets.
        psn_out: Psn = 24,
        /// Messages before the next one, as the holder counts.
        msn_in: u32 = 24,
        /// Messages before the next one, as the receiver counts; never changed by control packets.
        msn_out: u32 = 24,
        /// The epoch that this was linked for.
        version: u32 = 32,
    }
}

cell! {
    /// What one member acknowledged, as the holder counts.
    Acked {
        /// Up to here.
        psn: Psn = 24,
        /// Messages up to there.
        msn: u32 = 24,
    }
}

cell! {
    /// What all members acknowledged.
    Progress {
        /// Up to here, as the holder counts.
        last: Psn = 24,
        /// Messages up to there.
        last_msn: u32 = 24,
        /// The holder was told that something is missing, and no complete round came since.
        complained: bool = 1,
        /// The longest RNR timer since `last` moved; as code, 0 is none.
        rnr: u8 = 5,
        /// `RoundBitmap`: who acknowledged in this round.
        bitmap: u32 = 32,
        /// `RoundBitmap`: the smallest PSN of this round.
        round: Psn = 24,
        /// `RoundBitmap`: messages up to there.
        round_msn: u32 = 24,
    }
}

cell! {
    /// Congestion notifications.
    Notice {
        /// When the last went to the holder, units of 65.536 µs.
        at: u32 = 32,
        /// Whether one went at all.
        ever: bool = 1,
    }
}

/// All register arrays. The bank `acked` is 32 arrays, one per rank, so that the least over members takes one access of
/// each.
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
    /// All zero, as after a start: every set is silent.
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

    /// Sets that there is room for.
    #[must_use]
    pub fn sets(&self) -> usize {
        self.sessions.len()
    }

    /// Bits of all cells that there are.
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

    /// What the control plane sees of a set; it is not bound to passes.
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

    /// Creates a set anew, or takes it away, as the control plane does.
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

/// The registers of one set, to look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// VRQP.
    pub session: &'a Session,
    /// The aggregate.
    pub progress: &'a Progress,
    /// By rank.
    pub ranks: &'a [Rank; MOST],
    /// VSQPs by rank.
    pub members: &'a [Member; MOST],
    /// By rank.
    pub acked: &'a [Acked; MOST],
    /// Congestion notifications.
    pub notice: &'a Notice,
}

impl View<'_> {
    /// What is done of a rank, whether or not it holds the set: PSN and messages.
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
    /// Whether what is done of this rank is in [`Progress`].
    #[inline]
    #[must_use]
    pub fn is_held_by(&self, rank: u8) -> bool {
        matches!(self.state, State::Linking | State::Active | State::Poisoned) && self.holder == rank
    }

    /// Whether a rank is among the members.
    #[inline]
    #[must_use]
    pub fn has(&self, rank: u8) -> bool {
        self.mask >> (rank & 31) & 1 == 1
    }
}

/// A place in the pipeline: before the arrays of stage `S`.
#[derive(Debug)]
pub struct Stage<'a, const S: usize> {
    arrays: &'a mut Arrays,
    gid: usize,
}

impl<'a> Stage<'a, 0> {
    /// The beginning, for one set; `None` if there is no room for such a set.
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

            /// Passes by without touching.
            #[inline]
            #[must_use]
            pub fn $skip(self) -> Stage<'a, $next> {
                Stage { arrays: self.arrays, gid: self.gid }
            }
        })*
    };
}

stages! {
    0 => 1, ranks, no_ranks, "Touches what is known of a rank.", (rank) Rank, |all, gid, rank| &mut all.ranks[gid * MOST + rank];
    1 => 2, sessions, no_sessions, "Touches the VRQP.", () Session, |all, gid, _| &mut all.sessions[gid];
    2 => 3, members, no_members, "Touches a VSQP.", (rank) Member, |all, gid, rank| &mut all.members[gid * MOST + rank];
    3 => 4, acked, no_acked, "Touches each of the 32 arrays of acknowledgements.", () [Acked; MOST], |all, gid, _| &mut all.acked[gid];
    4 => 5, progress, no_progress, "Touches the aggregate.", () Progress, |all, gid, _| &mut all.progress[gid];
    5 => 6, notices, no_notices, "Touches the time of the last congestion notification.", () Notice, |all, gid, _| &mut all.notices[gid];
}

/// An address as a register holds it.
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
        assert_eq!(arrays, before, "there is no room for it");
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
    fn what_is_done_of_the_holder_is_the_aggregate() {
        let mut arrays = Arrays::new(1);
        arrays.sessions[0] = Session { state: State::Active, holder: 3, ..Session::default() };
        (arrays.progress[0].last, arrays.progress[0].last_msn) = (Psn::new(9), 8);
        (arrays.ranks[2].done, arrays.ranks[2].done_msn) = (Psn::new(5), 4);
        let view = arrays.view(0).expect("a set");
        assert_eq!((view.done(3), view.done(2)), ((Psn::new(9), 8), (Psn::new(5), 4)));
    }
}
