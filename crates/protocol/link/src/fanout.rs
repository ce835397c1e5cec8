//! Writes that the network copies: one WRITE to a set of processes, of which each target gets a copy.
//!
//! # Invariants
//! - Every write of a set is signalled: the places that it writes wait for it.
//! - Who is reached changes only with a connection of the set ([`Fabric::set_reaches`]).
//! - A write that was outstanding when the set broke may land late, until the target is settled
//!   ([`Fabric::set_settled`]). The protocols keep track of it: what they may write again, and when, depends on their rings.
//! - Nobody waits for the set to be there, or to come back.

use stentor_fabric::{
    Completion, ConnectError, Event, Fabric, PostError, ProcessId, QpConfig, QpId, QpState, SetSpec, SetTarget,
    SetWrite, Status,
};

use crate::Link;

/// Joins the set of `sender`. `None`: the network makes no copies here, or the members do not fit into a set.
fn join<F: Fabric>(
    fabric: &mut F,
    sender: ProcessId,
    members: &[ProcessId],
    depth: u32,
) -> Result<Option<QpId>, ConnectError> {
    if !fabric.capabilities().hardware_multicast {
        return Ok(None);
    }
    match fabric.join_set(SetSpec { number: sender.0, members }, QpConfig::reliable(depth, 0)) {
        Ok(set) => Ok(Some(set)),
        // The fabric has said so.
        Err(ConnectError::Set { .. }) if members.len() > SetSpec::MOST => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sets of other processes, in which this process gets copies.
#[derive(Debug, Default)]
pub struct JoinedSets(Vec<(ProcessId, QpId)>);

impl JoinedSets {
    /// Joins the set of another process, if the network makes copies here and the members fit into a set.
    ///
    /// # Errors
    /// If the fabric refuses.
    pub fn join<F: Fabric>(
        &mut self,
        fabric: &mut F,
        sender: ProcessId,
        members: &[ProcessId],
    ) -> Result<(), ConnectError> {
        // A receiver posts nothing.
        self.0.extend(join(fabric, sender, members, 1)?.map(|set| (sender, set)));
        Ok(())
    }

    /// Joins again where a set broke, but for those of senders that are `left`. What fails is tried again.
    pub fn mend<F: Fabric>(&self, fabric: &mut F, left: impl Fn(ProcessId) -> bool) {
        for (sender, set) in &self.0 {
            if !left(*sender) && fabric.state(*set) == QpState::Error {
                let _ = fabric.reset(*set);
            }
        }
    }
}

/// The sender's end of its set.
#[derive(Debug)]
pub struct FanoutSet {
    link: Link,
    /// By process: whether it gets copies.
    reached: Vec<bool>,
    /// The copies of the write in work.
    targets: Vec<SetTarget>,
}

impl FanoutSet {
    /// Joins the own set. The send queue is `depth` deep, or as deep as the fabric allows. `None`: the network makes no
    /// copies here, or the members do not fit into a set.
    ///
    /// # Errors
    /// If the fabric refuses.
    pub fn join<F: Fabric>(fabric: &mut F, members: &[ProcessId], depth: u32) -> Result<Option<Self>, ConnectError> {
        let (me, depth) = (fabric.me(), depth.min(fabric.capabilities().max_send_depth));
        let set = join(fabric, me, members, depth)?;
        let processes = members.iter().map(|member| member.index() + 1).max().unwrap_or(0);
        Ok(set.map(|qp| FanoutSet::new(Link::new(qp, me, depth), processes)))
    }

    /// An end of a set that is up, of queue pair 0 and with `writes` under way, for tests of what stands on it.
    #[doc(hidden)]
    #[must_use]
    pub fn stand_in(processes: usize, writes: usize) -> Self {
        let mut link = Link::new(QpId(0), ProcessId(0), 8);
        link.connected(QpState::Ready);
        (0..writes).for_each(|_| _ = link.posted(true, true));
        FanoutSet::new(link, processes)
    }

    fn new(link: Link, processes: usize) -> Self {
        FanoutSet { link, reached: vec![false; processes], targets: Vec::with_capacity(processes) }
    }

    /// Whether a write can be posted now.
    #[inline]
    #[must_use]
    pub fn can_post(&self) -> bool {
        self.link.can_post()
    }

    /// Whether a process gets copies.
    #[inline]
    #[must_use]
    pub fn reaches(&self, process: ProcessId) -> bool {
        self.reached[process.index()]
    }

    /// All writes up to this number are done.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u64 {
        self.link.done()
    }

    /// Whether all writes are done.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    /// Begins a write, with nobody who gets a copy.
    #[inline]
    pub fn begin(&mut self) {
        self.targets.clear();
    }

    /// Adds a copy to the write in work.
    #[inline]
    pub fn add(&mut self, target: SetTarget) {
        self.targets.push(target);
    }

    /// The copies of the write in work, also after it was [posted](FanoutSet::post).
    #[inline]
    #[must_use]
    pub fn targets(&self) -> &[SetTarget] {
        &self.targets
    }

    /// Posts the write in work. Returns its number, which [`done`](FanoutSet::done) reaches; `None` if the set did not
    /// take it.
    #[inline]
    pub fn post<F: Fabric>(&mut self, fabric: &mut F, data: &[u8]) -> Option<u64> {
        let write = SetWrite { id: self.link.next_id(), data, targets: &self.targets, signalled: true };
        match fabric.post_set(self.link.qp(), write) {
            Err(PostError::SendQueueFull { .. }) => None,
            posted => self.link.posted(posted.is_ok(), true),
        }
    }

    /// Takes a completion. Returns whether it is one of this set's.
    #[inline]
    pub fn completed(&mut self, completion: &Completion) -> bool {
        if completion.qp != self.link.qp() {
            return false;
        }
        if completion.status == Status::Success
            && let Some(number) = self.link.number(completion.id)
        {
            self.link.completed(number);
        }
        true
    }

    /// Takes an event. Returns whether it is one of this set's. A set that [broke](FanoutSet::is_broken) is to be
    /// [mended](FanoutSet::mend) when all its completions were polled.
    pub fn happened<F: Fabric>(&mut self, fabric: &F, event: &Event) -> bool {
        match *event {
            Event::Connected { qp, .. } if qp == self.link.qp() => {
                self.link.connected(fabric.state(qp));
                for (process, reached) in self.reached.iter_mut().enumerate() {
                    *reached = self.link.is_ready() && fabric.set_reaches(qp, ProcessId(process as u16));
                }
                true
            }
            Event::Disconnected { qp, .. } => qp == self.link.qp(),
            _ => false,
        }
    }

    /// Whether the set is broken.
    #[inline]
    #[must_use]
    pub fn is_broken<F: Fabric>(&self, fabric: &F) -> bool {
        fabric.state(self.link.qp()) == QpState::Error
    }

    /// Whether nothing of a broken set's writes can land at a process any more.
    #[inline]
    #[must_use]
    pub fn is_settled<F: Fabric>(&self, fabric: &F, process: ProcessId) -> bool {
        fabric.set_settled(self.link.qp(), process)
    }

    /// Joins a broken set again. Writes that were outstanding count as done from here on: who needs to know which ones asks
    /// [`done`](FanoutSet::done) before.
    pub fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        self.link.check(fabric);
    }
}
