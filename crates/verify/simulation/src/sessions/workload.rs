//! What the clients of a run call.

use stentor_multicast::{ClientId, GroupId};
use stentor_session::{ReadGuarantee, SessionId};

use super::told::{News, Told};
use crate::chance::Chance;

/// What the clients of a run call, one after the other. It outlives their processes, as what a program writes down does.
pub trait Workload {
    /// Decides what a client does next. A call that it names is begun when there is room for it, perhaps by a later process of the
    /// client; this is not asked again before that.
    fn next(&mut self, turn: &mut Turn<'_>) -> Next;

    /// Whether the named call of a client is a query, if it begins as number `token`.
    fn is_query(&self, client: ClientId, token: u64) -> bool;

    /// The named call of a client begins. It may be sent, or not be sent.
    fn begun(&mut self, begun: &Begun<'_>);

    /// Appends the bytes of a call that has begun.
    fn command(&self, token: u64, out: &mut Vec<u8>);

    /// The client knows the fate of a call, or that it never will know it. `stamp`: see [`Begun::stamp`].
    fn told(&mut self, token: u64, told: &Told, stamp: u64);

    /// A read outside the order comes after a time, which may be later than the place that its answer contains. Its fate is told next.
    fn comes_after(&mut self, token: u64, time: u64) {
        let _ = (token, time);
    }

    /// A process of a client has heard of notifications to its session.
    fn notified(&mut self, client: ClientId, process: u64, news: &News) {
        let _ = (client, process, news);
    }

    /// Takes what was found wrong since the last time, in words, for the story of the run.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The moment at which a client decides what to do next.
pub struct Turn<'a> {
    /// The client.
    pub client: ClientId,
    /// The number of its process, from 1.
    pub process: u64,
    /// Its session.
    pub session: SessionId,
    /// Virtual time, ns.
    pub now_ns: u64,
    /// Groups of the cluster.
    pub(super) groups: usize,
    /// Choices of the client's process.
    pub(super) chance: &'a mut Chance,
}

/// What a client does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// It calls these groups.
    Call(Vec<GroupId>),
    /// It reads at a group, outside the order. A read at the leader comes after all that the client has heard of, whatever time is named.
    Read(GroupId, ReadGuarantee),
    /// It waits for an answer, and is asked again then.
    Later,
    /// It is asked again after so many ns.
    Wait(u64),
    /// It has nothing more to do.
    Done,
}

/// A call that begins, or a read outside the order.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    /// What tells it from all others of the run.
    pub token: u64,
    /// The client.
    pub client: ClientId,
    /// Its session.
    pub session: SessionId,
    /// The generation of the session.
    pub generation: u32,
    /// Where it goes.
    pub to: &'a [GroupId],
    /// When, on a clock that no two events of the run share: virtual time in ns, and a little more where events coincide.
    pub stamp: u64,
}

impl Turn<'_> {
    /// Draws some of the groups: most often one or two.
    pub(super) fn draw_groups(&mut self) -> Vec<GroupId> {
        let mut to: Vec<GroupId> = (0..self.groups as u16).map(GroupId).collect();
        let wanted = self.chance.pick(&[1, 1, 2, 2, to.len()]);
        while to.len() > wanted {
            let drop = self.chance.between(0, to.len() as u64 - 1) as usize;
            to.remove(drop);
        }
        to
    }
}
