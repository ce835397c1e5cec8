//! Combines the answers of the members into one answer to the holder.

use core::net::Ipv4Addr;

use stentor_wire::{Aeth, NakCode, Psn, RnrTimer, Syndrome};

use crate::counters::Cause;
use crate::emission::notification;
use crate::mutant::{Mutant, mutant};
use crate::parsed::Parsed;
use crate::registers::{Acked, MOST, Member, Progress, Session, Stage, State};
use crate::step::{Aggregation, Bridge, Departure, Job, Switch, ticks};

/// A member's answer, in the holder's numbers: the acknowledged PSN, the message count, and the syndrome.
#[derive(Clone, Copy)]
struct Word {
    psn: Psn,
    msn: u32,
    syndrome: Syndrome,
}

/// Result of the pipeline stage that updates the aggregate.
#[derive(Clone, Copy)]
struct Sum {
    last: Psn,
    msn: u32,
    advanced: bool,
    rnr: RnrTimer,
}

fn u24_minus(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) & 0xff_ffff
}

/// Returns the rank of an RNR timer by duration, from 0 for the shortest, which has code 1, to 31 for the longest, which
/// has code 0.
fn rank_of(timer: RnrTimer) -> u8 {
    timer.code().wrapping_sub(1) & 31
}

/// Returns the RNR timer with this rank.
fn timer_of(rank: u8) -> RnrTimer {
    RnrTimer::from_code(rank.wrapping_add(1))
}

impl Member {
    /// Translates an answer into the holder's numbers. Returns `None` if the answer does not belong to this session, or
    /// if it names a PSN that was never sent.
    fn hear(&self, parsed: &Parsed<'_>, aeth: Aeth, session: &Session) -> Option<Word> {
        let right = self.ip == parsed.source && self.version == session.epoch;
        let offset = u24_minus(self.psn_out.get(), self.psn_in.get());
        // A negative answer acknowledges all packets before its PSN.
        let before = u32::from(!matches!(aeth.syndrome, Syndrome::Ack(_)));
        let psn = parsed.psn.minus(offset).minus(before);
        // The control packet is the first PSN of the session: an answer for an earlier PSN belongs to another session.
        let sent = psn.is_before(self.psn_in) && psn.distance(session.pend) >= 0;
        let msn = u24_minus(aeth.msn, u24_minus(self.msn_out, self.msn_in));
        (right && sent).then_some(Word { psn, msn, syndrome: aeth.syndrome })
    }
}

/// Records the answer of a member. Returns the smallest acknowledgement of all members.
fn least(all: &mut [Acked; MOST], word: Word, (rank, mask): (u8, u32), mutant: Mutant) -> Acked {
    let own = &mut all[usize::from(rank) % MOST];
    if own.psn.is_before(word.psn) {
        *own = Acked { psn: word.psn, msn: word.msn };
    }
    let first = *own;
    if mutant!(mutant, FirstAck) {
        return first;
    }
    let members = all.iter().enumerate().filter(|(member, _)| mask >> member & 1 == 1).map(|(_, acked)| *acked);
    members.fold(first, |least, acked| if acked.psn.is_before(least.psn) { acked } else { least })
}

impl Progress {
    fn exact(&mut self, least: Acked) -> bool {
        let advanced = self.last.is_before(least.psn);
        if advanced {
            (self.last, self.last_msn, self.rnr) = (least.psn, least.msn, 0);
        }
        advanced
    }

    /// Aggregates in rounds. When every member has answered in a round, the smallest PSN of the round is acknowledged,
    /// and the next round begins.
    fn round(&mut self, word: Word, rank: u8, mask: u32) -> bool {
        if self.bitmap == 0 || word.psn.is_before(self.round) {
            (self.round, self.round_msn) = (word.psn, word.msn);
        }
        self.bitmap |= 1 << (rank & 31);
        if self.bitmap & mask != mask {
            return false;
        }
        self.bitmap = 0;
        self.exact(Acked { psn: self.round, msn: self.round_msn })
    }

    fn hear(&mut self, word: Word, least: Acked, session: &Session, rank: u8, aggregation: Aggregation) -> Sum {
        let advanced = match aggregation {
            Aggregation::ExactMin => self.exact(least),
            Aggregation::RoundBitmap => self.round(word, rank, session.mask),
        };
        if let Syndrome::RnrNak(timer) = word.syndrome {
            // The register needs no value for "none": rank 0 is the shortest timer, which every timer replaces.
            self.rnr = self.rnr.max(rank_of(timer));
        }
        Sum { last: self.last, msn: self.last_msn, advanced, rnr: timer_of(self.rnr) }
    }
}

impl Switch {
    /// Handles an acknowledgement of a member, positive or negative.
    pub(crate) fn feedback(&mut self, parsed: &Parsed<'_>) -> Departure {
        let (mutant, aggregation) = (self.config.mutant, self.config.aggregation);
        let Some(aeth) = parsed.packet.aeth() else { return Departure::nothing(Cause::WrongOpcode) };
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (session, stage) = stage.no_ranks().sessions(|session| *session);
        if session.state != State::Active || !session.has(parsed.rank) {
            return Departure::nothing(Cause::Foreign);
        }
        let (word, stage) = stage.members(parsed.rank, |member| member.hear(parsed, aeth, &session));
        let Some(word) = word else { return Departure::nothing(Cause::Foreign) };
        if matches!(word.syndrome, Syndrome::Reserved(_)) {
            return Departure::nothing(Cause::Foreign);
        }
        let (smallest, stage) = stage.acked(|all| least(all, word, (parsed.rank, session.mask), mutant));
        let (sum, _) = stage.progress(|progress| progress.hear(word, smallest, &session, parsed.rank, aggregation));
        let again = word.psn.distance(sum.last) <= 0 && !mutant!(mutant, NoReAck);
        let msn = if mutant!(mutant, MsnOfTrigger) { word.msn } else { sum.msn };
        let to = (session.sip, session.sport, session.sqpn);
        let (cause, syndrome) = match word.syndrome {
            Syndrome::Ack(_) if sum.advanced || again => {
                let cause = if sum.advanced { Cause::Acknowledged } else { Cause::Again };
                return Departure::sent(cause, self.answer(to, sum.last, Syndrome::ACK, msn));
            }
            Syndrome::Ack(_) | Syndrome::Reserved(_) => return Departure::nothing(Cause::Noted),
            Syndrome::RnrNak(_) => (Cause::Refused, Syndrome::RnrNak(sum.rnr)),
            Syndrome::Nak(NakCode::PsnSequence) => (Cause::Refused, word.syndrome),
            // The member's queue pair is in error: a second pass poisons the set before the holder receives the NAK.
            Syndrome::Nak(_) => {
                let bridge = Bridge { epoch: session.epoch, slot: 0, job: Job::Break };
                return Departure::looped(Cause::Refused, bridge);
            }
        };
        let psn = if mutant!(mutant, NakExpected) { word.psn.next() } else { sum.last.next() };
        Departure::sent(cause, self.answer(to, psn, syndrome, msn))
    }

    /// Runs the second pass of a NAK that puts a member's queue pair into the error state.
    pub(crate) fn broken(&mut self, parsed: &Parsed<'_>, bridge: Option<Bridge>) -> Departure {
        let (Some(bridge), Some(aeth)) = (bridge, parsed.packet.aeth()) else {
            return Departure::nothing(Cause::Stale);
        };
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (session, stage) = stage.no_ranks().sessions(|session| {
            let before = *session;
            if before.state == State::Active && before.epoch == bridge.epoch {
                session.state = State::Poisoned;
            }
            before
        });
        if session.state != State::Active || session.epoch != bridge.epoch {
            return Departure::nothing(Cause::Stale);
        }
        let (progress, _) = stage.no_members().no_acked().progress(|progress| *progress);
        let to = (session.sip, session.sport, session.sqpn);
        let answer = self.answer(to, progress.last.next(), aeth.syndrome, progress.last_msn);
        Departure::sent(Cause::Poisons, answer)
    }

    /// Forwards a congestion notification of a member to the holder, but limits the rate over all members.
    pub(crate) fn notice(&mut self, parsed: &Parsed<'_>) -> Departure {
        let interval = ticks(self.config.notice_interval_ns);
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (session, stage) = stage.no_ranks().sessions(|session| *session);
        if session.state != State::Active || !session.has(parsed.rank) {
            return Departure::nothing(Cause::Foreign);
        }
        let (right, stage) = stage.members(parsed.rank, |member| member.ip == parsed.source);
        if !right {
            return Departure::nothing(Cause::WrongSource);
        }
        let (due, _) = stage.no_acked().no_progress().notices(|notice| {
            let due = !notice.ever || parsed.now.wrapping_sub(notice.at) > interval;
            if due {
                (notice.at, notice.ever) = (parsed.now, true);
            }
            due
        });
        if !due {
            return Departure::nothing(Cause::Thinned);
        }
        let to = Ipv4Addr::from_bits(session.sip);
        let port = self.config.answering_port(session.sport);
        Departure::sent(Cause::Notified, notification(self.config.forward, to, port, session.sqpn))
    }
}
