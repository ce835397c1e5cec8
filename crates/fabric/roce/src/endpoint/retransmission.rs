//! Acknowledgements, responses and timers. They determine which requests are complete and which packets are sent again.
//!
//! Invariant: only a move of `una` is progress, which resets the retries and restarts the timers. Two reports of the
//! peer are no progress:
//! - A negative acknowledgement of the packet at `una`. A "receiver not ready" NAK nevertheless resets the retries of
//!   timeouts, because the peer answers that packet.
//! - An answer to a later packet while the response at `una` is missing. A responder answers in the order of PSNs, so
//!   the answer implies that the missing response was lost (InfiniBand specification: implied NAK). It does not show
//!   that the path delivers this response: a path that drops long packets drops responses to READs and delivers
//!   acknowledgements. If these reset the retries, such a READ would be repeated for ever.

use stentor_fabric::Status;
use stentor_wire::{NakCode, Packet, Psn, Response, RnrTimer, Syndrome};

use super::completions::CompletionQueue;
use super::counters::Counters;
use super::memory::Memory;
use super::requester::{DataPlace, Probing, READ_PIECE, RequestKind, Requester};

/// The context in which a response is processed.
pub(crate) struct Hearing<'a> {
    pub(crate) now: u64,
    pub(crate) mtu: u16,
    pub(crate) memory: &'a Memory,
    pub(crate) counters: &'a mut Counters,
    pub(crate) completions: &'a mut CompletionQueue,
}

/// The result for the queue pair: an error breaks it.
pub(crate) type Verdict = Result<(), Status>;

impl Requester {
    /// Processes an acknowledgement or response. An error breaks the queue pair.
    pub(crate) fn hear(
        &mut self,
        psn: Psn,
        response: Response,
        packet: &Packet<&[u8]>,
        hearing: &mut Hearing<'_>,
    ) -> Verdict {
        // A sequence error may name the PSN after the last packet sent. A switch names the packet after those that all
        // members have acknowledged. If a member's NAK reaches the switch late, these may be all packets that were
        // sent.
        if psn.distance(self.sent) > 0 || psn == self.sent && !is_sequence_error(response) {
            hearing.counters.ghost_responses += 1;
            return Ok(());
        }
        if psn.is_before(self.una) {
            hearing.counters.stale_responses += 1;
            return Ok(());
        }
        match response {
            Response::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack(_) => self.acknowledge(psn, hearing),
                Syndrome::RnrNak(timer) => return self.not_ready(psn, timer, hearing),
                Syndrome::Nak(NakCode::PsnSequence) => self.sequence_error(psn, hearing),
                Syndrome::Nak(code) => {
                    self.retire(psn, hearing.completions);
                    return Err(match code {
                        NakCode::InvalidRequest => Status::RemoteInvalidRequest,
                        NakCode::RemoteAccess => Status::RemoteAccess,
                        // This includes codes that are invalid on this kind of connection.
                        _ => Status::RemoteOperational,
                    });
                }
                Syndrome::Reserved(_) => hearing.counters.wrong_responses += 1,
            },
            Response::Atomic(_, value) => return self.answer(psn, &value.to_ne_bytes(), true, hearing),
            _ => return self.answer(psn, packet.payload(), false, hearing),
        }
        Ok(())
    }

    /// Handles an acknowledgement: all requests up to `psn` were executed.
    fn acknowledge(&mut self, psn: Psn, hearing: &mut Hearing<'_>) {
        if !self.advance(psn.next(), hearing) {
            self.lost(self.una, hearing);
        }
    }

    fn sequence_error(&mut self, psn: Psn, hearing: &mut Hearing<'_>) {
        hearing.counters.sequence_naks_received += 1;
        self.advance(psn, hearing);
        self.lost(self.una, hearing);
    }

    /// Removes all requests before `until`, as [`Requester::retire`] does, and records progress if `una` moved.
    fn advance(&mut self, until: Psn, hearing: &mut Hearing<'_>) -> bool {
        let before = self.una;
        let complete = self.retire(until, hearing.completions);
        if before != self.una {
            self.progress(hearing.now);
        }
        complete
    }

    /// Handles the loss of a packet: goes back to its PSN, but only once per loss.
    fn lost(&mut self, psn: Psn, hearing: &mut Hearing<'_>) {
        if self.recovering || self.timers.rnr.is_some() {
            return;
        }
        self.window.lost(self.timers.round_trip);
        self.go_back(psn);
        self.timers.probe = Some(hearing.now + self.timers.patience);
    }

    fn not_ready(&mut self, psn: Psn, timer: RnrTimer, hearing: &mut Hearing<'_>) -> Verdict {
        hearing.counters.rnr_received += 1;
        if !self.advance(psn, hearing) {
            // The missing response is requested again first. If the receiver is still not ready then, it reports that
            // again.
            self.lost(self.una, hearing);
            return Ok(());
        }
        // The peer answers the packet at `una`, so timeouts before and after this NAK are not consecutive.
        self.retries = self.sending.retries;
        if self.timers.rnr.is_some() {
            return Ok(());
        }
        match self.rnr_retries {
            0 => return Err(Status::RnrRetryExceeded),
            7 if self.sending.rnr_retries == 7 => {}
            _ => self.rnr_retries -= 1,
        }
        self.go_back(self.una);
        self.recovering = false;
        self.timers.rnr = Some(hearing.now + timer.duration().as_nanos() as u64);
        (self.timers.retry, self.timers.probe) = (None, None);
        Ok(())
    }

    /// Handles a packet with data of a READ or with the old value of an atomic.
    fn answer(&mut self, psn: Psn, data: &[u8], atomic: bool, hearing: &mut Hearing<'_>) -> Verdict {
        // The response proves that all earlier requests were executed.
        if !self.advance(psn, hearing) {
            self.lost(self.una, hearing);
            return Ok(());
        }
        let Some(wqe) = self.queue.front_mut() else { return Ok(()) };
        let offset = wqe.answered * u32::from(hearing.mtu);
        let expected = match wqe.kind {
            RequestKind::Read if !atomic => wqe.bytes.saturating_sub(offset).min(hearing.mtu.into()),
            RequestKind::CompareSwap { .. } | RequestKind::FetchAdd { .. } if atomic => 8,
            _ => u32::MAX,
        };
        let DataPlace::Local(span) = wqe.place else {
            hearing.counters.wrong_responses += 1;
            return Ok(());
        };
        if wqe.first.plus(wqe.answered) != psn || data.len() != expected as usize {
            hearing.counters.wrong_responses += 1;
            return Ok(());
        }
        if !data.is_empty() {
            if !hearing.memory.contains(span) {
                return Err(Status::LocalProtection);
            }
            hearing.memory.store(span.region, span.offset + u64::from(offset), data);
        }
        wqe.answered += 1;
        let (answered, packets) = (wqe.answered, wqe.packets);
        if answered == packets || answered.is_multiple_of(READ_PIECE) {
            self.asked = self.asked.saturating_sub(1);
        }
        self.move_una(psn.next());
        if answered == packets {
            self.finish(hearing.completions);
        }
        self.catch_up();
        self.progress(hearing.now);
        Ok(())
    }

    fn move_una(&mut self, psn: Psn) {
        let count = psn.distance(self.una);
        if count > 0 {
            self.una = psn;
            self.window.acknowledge(count as u32);
        }
    }

    /// Removes all requests before `until` from the queue. Returns `false` if an earlier response is missing; `una` is
    /// then the PSN of that response.
    fn retire(&mut self, until: Psn, completions: &mut CompletionQueue) -> bool {
        let mut complete = true;
        let mut una = until;
        while let Some(front) = self.queue.front() {
            let reached = if front.wants_answer() { front.answered } else { front.packets };
            let done = front.first.plus(reached);
            if until.is_before(done) || until == front.first {
                break;
            }
            if reached < front.packets {
                complete = until == done;
                una = done;
                break;
            }
            self.finish(completions);
        }
        self.move_una(una);
        self.catch_up();
        complete
    }

    /// Moves the cursor past acknowledged packets, which need not be sent again.
    fn catch_up(&mut self) {
        if self.cursor_psn().is_before(self.una) || self.cursor.number < self.head {
            self.seek(self.una);
        }
    }

    /// Handles a move of `una`: resets the retries and restarts the timers.
    fn progress(&mut self, now: u64) {
        (self.retries, self.rnr_retries) = (self.sending.retries, self.sending.rnr_retries);
        self.recovering = false;
        if let Some((psn, since)) = self.timers.timed
            && psn.is_before(self.una)
        {
            self.timers.measured(now.saturating_sub(since).max(1));
        }
        self.timers.probed = false;
        self.timers.patience = self.timers.rested();
        self.restart_timers(now);
    }

    fn restart_timers(&mut self, now: u64) {
        // During the wait after "receiver not ready", nothing is sent and no response is expected. Both timers start
        // after it.
        let waiting = self.is_waiting() && self.timers.rnr.is_none();
        self.timers.retry = self.sending.timeout_ns().filter(|_| waiting).map(|timeout| now + timeout);
        self.timers.probe = waiting.then(|| now + self.timers.patience);
    }

    /// Processes expired timers. An error breaks the queue pair.
    pub(crate) fn tick(&mut self, now: u64, counters: &mut Counters) -> Verdict {
        let due = |timer: Option<u64>| timer.is_some_and(|at| at <= now);
        if due(self.timers.rnr) {
            self.timers.rnr = None;
            self.timers.retry = self.sending.timeout_ns().map(|timeout| now + timeout);
        }
        if due(self.timers.retry) {
            self.timers.retry = None;
            if self.is_waiting() {
                counters.timeouts += 1;
                self.retries = self.retries.checked_sub(1).ok_or(Status::RetryExceeded)?;
                self.window.timed_out();
                self.go_back(self.una);
                self.restart_timers(now);
            }
        }
        if due(self.timers.probe) {
            self.timers.probe = None;
            if self.is_waiting() {
                if self.recovering {
                    // The retransmitted packets, or the responses to them, were probably lost again.
                    self.window.repeated();
                    self.go_back(self.una);
                } else {
                    self.timers.probing = if self.timers.probed { Probing::Both } else { Probing::Last };
                    self.timers.probed = true;
                }
                let longest = self.sending.timeout_ns().unwrap_or(1 << 30);
                self.timers.patience = (2 * self.timers.patience).min(longest);
                self.timers.probe = Some(now + self.timers.patience);
            }
        }
        Ok(())
    }
}

fn is_sequence_error(response: Response) -> bool {
    matches!(response, Response::Acknowledge(aeth) if aeth.syndrome == Syndrome::Nak(NakCode::PsnSequence))
}
