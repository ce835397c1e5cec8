//! Fan-out sets: one WRITE to a set of processes, of which the network delivers a copy to each target.
//!
//! # Invariants
//! - Every write of a set is signalled, because the memory that it writes is reused only after its completion.
//! - The processes that a set reaches change only with a connection of the set ([`Fabric::set_reaches`]).
//! - A write that was outstanding when the set broke may land late, until the target is settled
//!   ([`Fabric::set_settled`]). The protocols keep track of it, because their rings determine what they may write
//!   again, and when.
//! - No caller waits for a set to be connected or to recover.

use stentor_fabric::{
    Completion, ConnectError, Event, Fabric, PostError, ProcessId, QpConfig, QpId, QpState, SetSpec, SetTarget,
    SetWrite, Status,
};

use crate::Link;

/// Joins the set of `sender`. Returns `None` if the network makes no copies, or if the members do not fit into a set.
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
        // The fabric has reported that the set is too large.
        Err(ConnectError::Set { .. }) if members.len() > SetSpec::MOST => Ok(None),
        Err(error) => Err(error),
    }
}

/// The sets of other senders, in which this process receives copies.
#[derive(Debug, Default)]
pub struct JoinedSets(Vec<(ProcessId, QpId)>);

impl JoinedSets {
    /// Joins the set of another process, if the network makes copies and the members fit into a set.
    ///
    /// # Errors
    /// Returns the fabric's error if it refuses.
    pub fn join<F: Fabric>(
        &mut self,
        fabric: &mut F,
        sender: ProcessId,
        members: &[ProcessId],
    ) -> Result<(), ConnectError> {
        // A receiver posts nothing, so a queue of depth 1 suffices.
        self.0.extend(join(fabric, sender, members, 1)?.map(|set| (sender, set)));
        Ok(())
    }

    /// Joins broken sets again, except those of senders for which `left` returns `true`. Sets for which that fails are
    /// retried with the next call.
    pub fn mend<F: Fabric>(&self, fabric: &mut F, left: impl Fn(ProcessId) -> bool) {
        for (sender, set) in &self.0 {
            if !left(*sender) && fabric.state(*set) == QpState::Error {
                let _ = fabric.reset(*set);
            }
        }
    }
}

/// A sender's end of its fan-out set.
#[derive(Debug)]
pub struct FanoutSet {
    link: Link,
    /// `true` for each process, by index, that gets copies.
    reached: Vec<bool>,
    /// Targets of the write that is being built.
    targets: Vec<SetTarget>,
}

impl FanoutSet {
    /// Joins the set of this process. The send queue has the given depth, or the fabric's limit if that is smaller.
    /// Returns `None` if the network makes no copies, or if the members do not fit into a set.
    ///
    /// # Errors
    /// Returns the fabric's error if it refuses.
    pub fn join<F: Fabric>(fabric: &mut F, members: &[ProcessId], depth: u32) -> Result<Option<Self>, ConnectError> {
        let (me, depth) = (fabric.me(), depth.min(fabric.capabilities().max_send_depth));
        let set = join(fabric, me, members, depth)?;
        let processes = members.iter().map(|member| member.index() + 1).max().unwrap_or(0);
        Ok(set.map(|qp| FanoutSet::new(Link::new(qp, me, depth), processes)))
    }

    /// Creates a connected end of a set, with queue pair 0 and `writes` outstanding writes, for tests of its users.
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

    /// Returns whether a write can be posted now.
    #[inline]
    #[must_use]
    pub fn can_post(&self) -> bool {
        self.link.can_post()
    }

    /// Returns whether a process gets copies.
    #[inline]
    #[must_use]
    pub fn reaches(&self, process: ProcessId) -> bool {
        self.reached[process.index()]
    }

    /// Returns the number up to which all writes are done.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u64 {
        self.link.done()
    }

    /// Returns whether all writes are done.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    /// Begins a write, without targets.
    #[inline]
    pub fn begin(&mut self) {
        self.targets.clear();
    }

    /// Adds a target to the write that is being built.
    #[inline]
    pub fn add(&mut self, target: SetTarget) {
        self.targets.push(target);
    }

    /// Returns the targets of the write that is being built, also after it was [posted](FanoutSet::post).
    #[inline]
    #[must_use]
    pub fn targets(&self) -> &[SetTarget] {
        &self.targets
    }

    /// Posts the write. Returns its number, which [`done`](FanoutSet::done) reaches, or `None` if the set refused it.
    #[inline]
    pub fn post<F: Fabric>(&mut self, fabric: &mut F, data: &[u8]) -> Option<u64> {
        let write = SetWrite { id: self.link.next_id(), data, targets: &self.targets, signalled: true };
        match fabric.post_set(self.link.qp(), write) {
            Err(PostError::SendQueueFull { .. }) => None,
            posted => self.link.posted(posted.is_ok(), true),
        }
    }

    /// Processes a completion. Returns whether it belongs to this set.
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

    /// Processes an event. Returns whether it belongs to this set. A set that is [broken](FanoutSet::is_broken) must be
    /// [mended](FanoutSet::mend) once all its completions were polled.
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

    /// Returns whether the set is broken.
    #[inline]
    #[must_use]
    pub fn is_broken<F: Fabric>(&self, fabric: &F) -> bool {
        fabric.state(self.link.qp()) == QpState::Error
    }

    /// Returns whether no write of a broken set can land at a process any more.
    #[inline]
    #[must_use]
    pub fn is_settled<F: Fabric>(&self, fabric: &F, process: ProcessId) -> bool {
        fabric.set_settled(self.link.qp(), process)
    }

    /// Joins a broken set again. Outstanding writes count as done afterwards; a caller that must know them reads
    /// [`done`](FanoutSet::done) before.
    pub fn mend<F: Fabric>(&mut self, fabric: &mut F) {
        self.link.check(fabric);
    }
}
