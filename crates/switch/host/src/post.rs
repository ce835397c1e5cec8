//! Writes of a set and their completions.

use std::time::Instant;

use stentor_fabric::memory::WORD;
use stentor_fabric::{Completion, Opcode, PostError, QpId, QpState, SetSpec, SetTarget, SetWrite, Status};
use stentor_fabric_net::NO_SETS;
use stentor_switch::host::{Next, Sender, Target, Written};

use super::{Cm, RawWrite, Set, SetTransport, SwitchSets};

impl<T: SetTransport> SwitchSets<T> {
    /// Posts a write: see [`Sets::post`](stentor_fabric_net::Sets::post).
    #[inline]
    pub(super) fn post_set(
        cm: &mut Cm<T>,
        transport: &mut T,
        qp: QpId,
        write: &SetWrite<'_>,
        (is_alive, inline_bytes): (bool, u32),
    ) -> Result<(), PostError> {
        let missing = || if cm.sets.config.is_none() { NO_SETS } else { PostError::UnknownQp(qp) };
        let state = cm.state(qp).ok_or_else(missing)?;
        let n = cm
            .set_of(qp)
            .ok_or(PostError::Unsupported("copies by the network on a queue pair that does not belong to a set"))?;
        let state = if is_alive { state } else { QpState::Error };
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        let bytes = write.data.len() as u64;
        if bytes > inline_bytes.into() {
            return Err(PostError::InlineTooLong { bytes, limit: inline_bytes });
        }
        let mut targets = [Target::default(); SetSpec::MOST];
        let targets = Self::targets(cm, qp, n, write, &mut targets)?;
        let set = &mut cm.sets.all[n];
        let Some(sender) = &mut set.sender else {
            return Err(PostError::Unsupported("writes to a set by a process that is not its sender"));
        };
        match sender.write((write.id, write.signalled), targets, write.data) {
            Written::Now { token, va, rkey, signalled } => {
                // If this fails the queue pair breaks, and the write completes with all other outstanding ones.
                let _ = transport.write(qp, &RawWrite { id: token, data: write.data, va, rkey, signalled });
            }
            Written::Later => post_all(transport, set),
            Written::Full => return Err(PostError::SendQueueFull { qp, depth: set.depth }),
        }
        Ok(())
    }

    fn targets<'a>(
        cm: &Cm<T>,
        qp: QpId,
        n: usize,
        write: &SetWrite<'_>,
        to: &'a mut [Target; SetSpec::MOST],
    ) -> Result<&'a [Target], PostError> {
        let set = &cm.sets.all[n];
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
            if *peer == cm.me() || set.who & bit == 0 || seen & bit != 0 {
                return Err(refused);
            }
            seen |= bit;
            let place = cm.remotes().place(&span.region);
            *slot = Target { rank, rkey: place.key as u32, base: place.base, offset: span.offset };
        }
        if seen == 0 {
            return Err(PostError::NotReached { qp, peer: cm.me() });
        }
        Ok(&to[..write.targets.len()])
    }

    /// Handles a completion of a set's queue pair, whose id is a [`RawWrite::id`]. Posts writes that waited for it.
    /// Returns the caller's completion, if any.
    pub(super) fn set_completed(cm: &mut Cm<T>, transport: &mut T, done: &Completion) -> Option<Completion> {
        let n = cm.set_of(done.qp)?;
        let set = &mut cm.sets.all[n];
        let sender = set.sender.as_mut().filter(|sender| sender.is_current(done.id))?;
        if done.status == Status::Success {
            let told = sender.completed(done.id);
            post_all(transport, set);
            return told.map(|id| completion(done.qp, id, Status::Success));
        }
        sender.completed_before(done.id);
        Self::flush_set(cm, n, done.status);
        cm.sets.flushed.pop_front()
    }

    /// Returns a completion that no queue pair reported. The caller must first have polled all completions that queue
    /// pairs reported.
    pub(super) fn take_flushed(cm: &mut Cm<T>) -> Option<Completion> {
        if std::mem::take(&mut cm.sets.dying) {
            for n in 0..cm.sets.all.len() {
                let set = &cm.sets.all[n];
                if cm.state(set.qp) == Some(QpState::Error) {
                    let ended = set.ended;
                    Self::flush_set(cm, n, ended);
                }
            }
        }
        cm.sets.flushed.pop_front()
    }

    /// Fails all writes that are not done. The first of them completes with the status `first`, all later ones as
    /// flushed.
    pub(super) fn flush_set(cm: &mut Cm<T>, n: usize, first: Status) {
        let (set, mut status) = (&mut cm.sets.all[n], first);
        let Some(sender) = &mut set.sender else { return };
        while let Some(id) = sender.next_failed() {
            cm.sets.flushed.push_back(completion(set.qp, id, std::mem::replace(&mut status, Status::Flushed)));
        }
    }
}

fn completion(qp: QpId, id: u64, status: Status) -> Completion {
    Completion { qp, id, opcode: Opcode::Write, status, bytes: 0, imm: None, tag: 0 }
}

/// Posts all requests that can be posted now.
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

/// Records the start of a change of the member list.
fn note_link(sender: Option<&Sender>, before: u64, linking: &mut Option<(Instant, u64)>) {
    if let Some(sender) = sender
        && sender.links() != before
    {
        *linking = Some((Instant::now(), sender.links()));
    }
}
