//! The calls of the clients of a run.

use stentor_multicast::{ClientId, GroupId};
use stentor_session::{ReadGuarantee, SessionId};

use super::told::{News, Told};
use crate::chance::Chance;

/// The calls of the clients of a run, in sequence. A workload outlives the clients' processes, like data that a program
/// stores.
pub trait Workload {
    /// Decides what a client does next. The chosen call begins when there is room for it. If the process of the client
    /// ends before that, a later process calls `next` again.
    fn next(&mut self, turn: &mut Turn<'_>) -> Next;

    /// Returns whether the chosen call of a client is a query. `token` is the token that the call will have.
    fn is_query(&self, client: ClientId, token: u64) -> bool;

    /// Notes that the chosen call of a client begins. The call may still not be sent, because there is no room or
    /// because the client crashes.
    fn begun(&mut self, begun: &Begun<'_>);

    /// Appends the bytes of a call that has begun.
    fn command(&self, token: u64, out: &mut Vec<u8>);

    /// Notes that the client has learnt the fate of a call, or that the client can never learn this fate. For `stamp`,
    /// see [`Begun::stamp`].
    fn told(&mut self, token: u64, told: &Told, stamp: u64);

    /// Notes that a read outside the order includes the order up to a time, which may be later than the position in its
    /// answer. The fate of the read is reported next.
    fn comes_after(&mut self, token: u64, time: u64) {
        let _ = (token, time);
    }

    /// Notes that a client process received notifications to its session.
    fn notified(&mut self, client: ClientId, process: u64, news: &News) {
        let _ = (client, process, news);
    }

    /// Returns descriptions of the errors found since the last call, for the story of the run.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The context in which a client decides what to do next.
pub struct Turn<'a> {
    /// The client.
    pub client: ClientId,
    /// The number of the client's process, from 1.
    pub process: u64,
    /// The session of the client.
    pub session: SessionId,
    /// Virtual time, in nanoseconds.
    pub now_ns: u64,
    /// Number of groups of the cluster.
    pub(super) groups: usize,
    /// The random choices of the client's process.
    pub(super) chance: &'a mut Chance,
}

/// The next action of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The client calls these groups.
    Call(Vec<GroupId>),
    /// The client reads at a group, outside the order. A read at the leader includes all commands that the client has
    /// observed, whatever time the read names.
    Read(GroupId, ReadGuarantee),
    /// The client has nothing to do now. [`Workload::next`] is called again at the client's next step.
    Later,
    /// The client waits for this time, in nanoseconds. Then [`Workload::next`] is called again.
    Wait(u64),
    /// The client is done.
    Done,
}

/// A call or a read outside the order that begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'a> {
    /// A number that identifies the call in the run.
    pub token: u64,
    /// The client.
    pub client: ClientId,
    /// The session of the client.
    pub session: SessionId,
    /// The generation of the session.
    pub generation: u32,
    /// The destination groups.
    pub to: &'a [GroupId],
    /// The time of the event in nanoseconds, unique in the run: virtual time, or slightly later if events coincide.
    pub stamp: u64,
}

impl Turn<'_> {
    /// Draws some of the groups, usually one or two.
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
