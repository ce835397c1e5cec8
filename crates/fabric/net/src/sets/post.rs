//! Writes of a set, and what comes of them.

use std::time::Instant;

use stentor_fabric::memory::WORD;
use stentor_fabric::{Completion, Opcode, PostError, QpId, QpState, SetSpec, SetTarget, SetWrite, Status};
use stentor_switch::host::{Next, Sender, Target, Written};

use super::{RawWrite, Set, SetTransport};
use crate::cm::ConnectionManager;

/// Where there is no switch.
const NO_SETS: PostError = PostError::Unsupported("multicast by the network");

impl ConnectionManager {
    /// Posts a write of a set: for [`Fabric::post_set`](stentor_fabric::Fabric::post_set). `is_alive` is false where the fabric
    /// knows that the queue pair broke a moment ago, `inline_bytes` the longest data.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_set<E: SetTransport>(
        &mut self,
        transport: &mut E,
        qp: QpId,
        write: &SetWrite<'_>,
        (is_alive, inline_bytes): (bool, u32),
    ) -> Result<(), PostError> {
        let missing = || if self.sets.config.is_none() { NO_SETS } else { PostError::UnknownQp(qp) };
        let own = self.connections.get(qp.index()).ok_or_else(missing)?;
        let n = own.set.ok_or(PostError::Unsupported("copies by the network on a queue pair that is no set"))?;
        let state = if is_alive { own.state } else { QpState::Error };
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        let bytes = write.data.len() as u64;
        if bytes > inline_bytes.into() {
            return Err(PostError::InlineTooLong { bytes, limit: inline_bytes });
        }
        let mut targets = [Target::default(); SetSpec::MOST];
        let targets = self.targets(qp, n, write, &mut targets)?;
        let set = &mut self.sets.all[n];
        let Some(sender) = &mut set.sender else {
            return Err(PostError::Unsupported("sets that another process writes to than the one with their number"));
        };
        match sender.write((write.id, write.signalled), targets, write.data) {
            Written::Now { token, va, rkey, signalled } => {
                // If it fails the queue pair breaks, and the write completes like all that is outstanding then.
                let _ = transport.write(qp, &RawWrite { id: token, data: write.data, va, rkey, signalled });
            }
            Written::Later => post_all(transport, set),
            Written::Full => return Err(PostError::SendQueueFull { qp, depth: set.depth }),
        }
        Ok(())
    }

    fn targets<'a>(
        &self,
        qp: QpId,
        n: usize,
        write: &SetWrite<'_>,
        to: &'a mut [Target; SetSpec::MOST],
    ) -> Result<&'a [Target], PostError> {
        let set = &self.sets.all[n];
        let bytes = write.data.len() as u64;
        let mut seen = 0_u32;
        for (place, SetTarget { peer, to: span }) in write.targets.iter().enumerate() {
            if !(span.offset | bytes).is_multiple_of(WORD as u64) {
                return Err(PostError::Misaligned { offset: span.offset, bytes });
            }
            let refused = PostError::NotReached { qp, peer: *peer };
            let rank = set.rank_of(*peer).ok_or(refused)?;
            let bit = 1 << rank;
            let slot = to.get_mut(place).ok_or(refused)?;
            if *peer == self.me || set.who & bit == 0 || seen & bit != 0 {
                return Err(refused);
            }
            seen |= bit;
            let place = self.remotes.place(&span.region);
            *slot = Target { rank, rkey: place.key as u32, base: place.base, offset: span.offset };
        }
        if seen == 0 {
            return Err(PostError::NotReached { qp, peer: self.me });
        }
        Ok(&to[..write.targets.len()])
    }

    /// A completion of a set's queue pair: what the caller is to hear of it. The id is what [`RawWrite::id`] said. What was kept
    /// back is posted.
    pub fn set_completed<E: SetTransport>(&mut self, transport: &mut E, done: &Completion) -> Option<Completion> {
        let n = self.connections.get(done.qp.index())?.set?;
        let set = &mut self.sets.all[n];
        let sender = set.sender.as_mut().filter(|sender| sender.is_current(done.id))?;
        if done.status == Status::Success {
            let told = sender.completed(done.id);
            post_all(transport, set);
            return told.map(|id| completion(done.qp, id, Status::Success));
        }
        sender.completed_before(done.id);
        self.flush_set(n, done.status);
        self.sets.flushed.pop_front()
    }

    /// A completion that no queue pair told of; to be asked for when those of the queue pairs were taken.
    pub fn next_flushed(&mut self) -> Option<Completion> {
        if std::mem::take(&mut self.sets.dying) {
            for n in 0..self.sets.all.len() {
                let set = &self.sets.all[n];
                if self.connections[set.qp.index()].state == QpState::Error {
                    let ended = set.ended;
                    self.flush_set(n, ended);
                }
            }
        }
        self.sets.flushed.pop_front()
    }

    /// All that is not done ends: the first with a status.
    pub(super) fn flush_set(&mut self, n: usize, first: Status) {
        let (set, mut status) = (&mut self.sets.all[n], first);
        let Some(sender) = &mut set.sender else { return };
        while let Some(id) = sender.next_failed() {
            self.sets.flushed.push_back(completion(set.qp, id, std::mem::replace(&mut status, Status::Flushed)));
        }
    }
}

fn completion(qp: QpId, id: u64, status: Status) -> Completion {
    Completion { qp, id, opcode: Opcode::Write, status, bytes: 0, imm: None, tag: 0 }
}

/// Posts what can be posted.
fn post_all(transport: &mut impl SetTransport, set: &mut Set) {
    let Some(sender) = &mut set.sender else { return };
    let links = sender.links();
    while let Some(Next { token, va, rkey, data, signalled }) = sender.next_write() {
        if transport.write(set.qp, &RawWrite { id: token, data, va, rkey, signalled }).is_err() {
            break;
        }
    }
    note_link(set.sender.as_ref(), links, &mut set.linking);
}

/// When a change of the list began.
fn note_link(sender: Option<&Sender>, before: u64, linking: &mut Option<(Instant, u64)>) {
    if let Some(sender) = sender
        && sender.links() != before
    {
        *linking = Some((Instant::now(), sender.links()));
    }
}
