//! Replication of data, one copy in each pass.

use stentor_wire::{NakCode, Psn, Syndrome};

use crate::counters::Cause;
use crate::emission::{Translation, copy};
use crate::mutant::mutant;
use crate::parsed::Parsed;
use crate::registers::{Member, Session, Stage, State};
use crate::step::{Aggregation, Bridge, Departure, Job, Switch};

/// Decision about a data packet at the pipeline stage of the session.
#[derive(Clone, Copy)]
enum Found {
    /// The packet is replicated: this pass copies it to `member`, the first of `n`.
    Copies {
        member: u8,
        n: u8,
        epoch: u32,
    },
    /// An earlier packet is missing for all receivers, so no receiver gets a copy.
    Ahead,
    /// The holder sent the packet while its control packet is being executed.
    Linking,
    Poisoned,
    /// The sender does not hold the set. `free` is `true` if no rank does.
    Foreign {
        free: bool,
    },
    /// The set does not exist.
    Silent,
}

/// Decision about a data packet at the pipeline stage of the member.
#[derive(Clone, Copy)]
enum Reached {
    Nobody,
    Gap,
    Copy { to: Translation, new: bool },
}

impl Member {
    /// Translates a packet for this member, and advances the member's numbers if the packet is the next one.
    #[inline]
    fn pass(&mut self, parsed: &Parsed<'_>, epoch: u32) -> Reached {
        if self.version != epoch {
            return Reached::Nobody;
        }
        let ahead = parsed.psn.distance(self.psn_in);
        if ahead > 0 {
            return Reached::Gap;
        }
        let offset = self.psn_out.get().wrapping_sub(self.psn_in.get());
        let to =
            Translation { to: self.ip, qpn: self.qpn, psn: parsed.psn.plus(offset), rkey: self.rkey, base: self.base };
        if ahead == 0 {
            (self.psn_in, self.psn_out) = (self.psn_in.next(), self.psn_out.next());
            if ends(parsed) {
                self.msn_in = (self.msn_in + 1) & 0xff_ffff;
                self.msn_out = (self.msn_out + 1) & 0xff_ffff;
            }
        }
        Reached::Copy { to, new: ahead == 0 }
    }
}

/// Returns whether the packet ends a message: its opcode is LAST or ONLY, with or without an immediate.
#[inline]
fn ends(parsed: &Parsed<'_>) -> bool {
    matches!(parsed.opcode.to_byte(), 0x02..=0x05 | 0x08..=0x0b)
}

impl Session {
    /// Classifies a data packet in its first pass. While the set is active, the holder's data also renews the lease and
    /// advances `top`.
    #[inline]
    fn admit(&mut self, parsed: &Parsed<'_>) -> Found {
        let held = self.is_held_by(parsed.rank);
        match self.state {
            State::Silent => Found::Silent,
            State::Poisoned => Found::Poisoned,
            State::Linking if held => Found::Linking,
            State::Active if held => {
                self.heard = parsed.now;
                let ahead = parsed.psn.distance(self.top);
                if ahead > 0 {
                    return Found::Ahead;
                }
                if ahead == 0 {
                    self.top = self.top.next();
                    self.mid = !ends(parsed);
                }
                Found::Copies { member: self.slots[0], n: self.n, epoch: self.epoch }
            }
            state => Found::Foreign { free: state == State::Free },
        }
    }
}

impl Switch {
    /// Runs the first pass of a data packet.
    #[inline]
    pub(crate) fn data(&mut self, parsed: &Parsed<'_>) -> Departure {
        let exact = self.config.aggregation == Aggregation::ExactMin;
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (rank, stage) = stage.ranks(parsed.rank, |rank| *rank);
        if rank.ip != parsed.source || rank.ip == 0 {
            return Departure::nothing(Cause::WrongSource);
        }
        let ((found, held), stage) = stage.sessions(|session| (session.admit(parsed), session.is_held_by(parsed.rank)));
        let Found::Copies { member, n, epoch } = found else {
            let (progress, _) = stage.no_members().no_acked().progress(|progress| {
                let before = *progress;
                if matches!(found, Found::Ahead | Found::Linking) && parsed.psn.distance(before.last) > 0 {
                    progress.complained = true;
                }
                before
            });
            let done = if held { (progress.last, progress.last_msn) } else { (rank.done, rank.done_msn) };
            return self.unreplicated(parsed, found, (rank.sqpn, done, progress.complained));
        };
        let (reached, stage) = stage.members(member, |member| member.pass(parsed, epoch));
        let (acked, stage) = stage.acked(|all| all[usize::from(member & 31)].psn);
        let gap = matches!(reached, Reached::Gap);
        let is_last = n == 1;
        let (progress, _) = stage.progress(|progress| {
            let before = *progress;
            let beyond = parsed.psn.distance(before.last) > 0;
            if is_last && beyond {
                progress.complained = gap;
            }
            before
        });
        if parsed.psn.distance(progress.last) <= 0 {
            let done = (progress.last, progress.last_msn);
            return self.again(parsed, rank.sqpn, done);
        }
        let mut departure = self.copied(parsed, reached, exact && parsed.psn.distance(acked) <= 0);
        let bridge = |job| Bridge { epoch, slot: 1, job };
        if !is_last {
            departure.mirror = Some(bridge(Job::Copy { gap }));
        } else if gap && !progress.complained {
            departure.mirror = Some(bridge(Job::Complain));
        }
        departure
    }

    /// Acknowledges a packet that is done. The switch repeats the answer in place of the receivers.
    pub(crate) fn again(&self, parsed: &Parsed<'_>, sqpn: u32, (done, msn): (Psn, u32)) -> Departure {
        if mutant!(self.config.mutant, NoReAck) {
            return Departure::nothing(Cause::Again);
        }
        let to = (parsed.source, parsed.port, sqpn);
        Departure::sent(Cause::Again, self.answer(to, done, Syndrome::ACK, msn))
    }

    /// Answers data that is not replicated.
    fn unreplicated(
        &self,
        parsed: &Parsed<'_>,
        found: Found,
        (sqpn, done, complained): (u32, (Psn, u32), bool),
    ) -> Departure {
        let to = (parsed.source, parsed.port, sqpn);
        let ahead = parsed.psn.distance(done.0);
        let nak = |cause, code| {
            let psn = if mutant!(self.config.mutant, NakExpected) && code == NakCode::PsnSequence {
                self.arrays.view(parsed.gid).map_or(done.0, |view| view.session.top)
            } else {
                done.0.next()
            };
            Departure::sent(cause, self.answer(to, psn, Syndrome::Nak(code), done.1))
        };
        let forgotten = mutant!(self.config.mutant, DoneForgotten) && matches!(found, Found::Foreign { .. });
        match found {
            Found::Silent | Found::Copies { .. } => Departure::nothing(Cause::UnknownSet),
            _ if ahead <= 0 && forgotten => Departure::nothing(Cause::NotHolder),
            _ if ahead <= 0 => self.again(parsed, sqpn, done),
            Found::Ahead | Found::Linking if complained => Departure::nothing(Cause::Quiet),
            Found::Ahead => nak(Cause::Complained, NakCode::PsnSequence),
            Found::Linking => nak(Cause::TooEarly, NakCode::PsnSequence),
            Found::Poisoned => nak(Cause::Poisoned, NakCode::RemoteOperational),
            // The packet directly after the done PSN belongs to a session that another rank has taken over or that was
            // released.
            Found::Foreign { .. } if ahead == 1 => nak(Cause::NotHolder, NakCode::RemoteOperational),
            Found::Foreign { free: true } => nak(Cause::Complained, NakCode::PsnSequence),
            Found::Foreign { free: false } => Departure::nothing(Cause::NotHolder),
        }
    }

    /// Runs a later pass of a data packet.
    #[inline]
    pub(crate) fn replicate(&mut self, parsed: &Parsed<'_>, bridge: &Bridge) -> Departure {
        let gap_before = match bridge.job {
            Job::Copy { gap } => gap,
            Job::Complain => return self.complain(parsed, bridge),
            _ => return Departure::nothing(Cause::Stale),
        };
        let exact = self.config.aggregation == Aggregation::ExactMin;
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (found, stage) = stage.no_ranks().sessions(|session| {
            let same = session.state == State::Active
                && session.epoch == bridge.epoch
                && session.holder == parsed.rank
                && bridge.slot < session.n;
            same.then(|| (session.slots[usize::from(bridge.slot & 31)], session.n))
        });
        let Some((member, n)) = found else { return Departure::nothing(Cause::Stale) };
        let (reached, stage) = stage.members(member, |member| member.pass(parsed, bridge.epoch));
        let (acked, stage) = stage.acked(|all| all[usize::from(member & 31)].psn);
        let gap = gap_before || matches!(reached, Reached::Gap);
        let is_last = bridge.slot + 1 == n;
        let (complained, _) = stage.progress(|progress| {
            let before = progress.complained;
            if is_last {
                progress.complained = gap;
            }
            before
        });
        let mut departure = self.copied(parsed, reached, exact && parsed.psn.distance(acked) <= 0);
        let next = |job| Bridge { epoch: bridge.epoch, slot: bridge.slot + 1, job };
        if !is_last {
            departure.mirror = Some(next(Job::Copy { gap }));
        } else if gap && !complained {
            departure.mirror = Some(next(Job::Complain));
        }
        departure
    }

    /// Sends the holder a NAK for a missing packet. This takes a separate pass because a pass sends at most one packet,
    /// and the previous pass may have sent the last copy.
    fn complain(&mut self, parsed: &Parsed<'_>, bridge: &Bridge) -> Departure {
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (session, stage) = stage.no_ranks().sessions(|session| *session);
        if session.state != State::Active || session.epoch != bridge.epoch || session.holder != parsed.rank {
            return Departure::nothing(Cause::Stale);
        }
        let (progress, _) = stage.no_members().no_acked().progress(|progress| *progress);
        let psn = if mutant!(self.config.mutant, NakExpected) { parsed.psn } else { progress.last.next() };
        let syndrome = Syndrome::Nak(NakCode::PsnSequence);
        let to = (session.sip, session.sport, session.sqpn);
        Departure::sent(Cause::Complained, self.answer(to, psn, syndrome, progress.last_msn))
    }

    /// Refuses READs, atomics and other operations for which the switch cannot combine the receivers' answers.
    #[cold]
    pub(crate) fn invalid(&mut self, parsed: &Parsed<'_>) -> Departure {
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (rank, stage) = stage.ranks(parsed.rank, |rank| *rank);
        if rank.ip != parsed.source || rank.ip == 0 {
            return Departure::nothing(Cause::WrongSource);
        }
        let ((state, held), stage) = stage.sessions(|session| (session.state, session.is_held_by(parsed.rank)));
        let (last, _) = stage.no_members().no_acked().progress(|progress| (progress.last, progress.last_msn));
        if state == State::Silent {
            return Departure::nothing(Cause::UnknownSet);
        }
        let done = if held { last } else { (rank.done, rank.done_msn) };
        match parsed.psn.distance(done.0) {
            ..=0 => self.again(parsed, rank.sqpn, done),
            1 => {
                let syndrome = Syndrome::Nak(NakCode::InvalidRequest);
                let to = (parsed.source, parsed.port, rank.sqpn);
                Departure::sent(Cause::Invalid, self.answer(to, parsed.psn, syndrome, done.1))
            }
            _ => Departure::nothing(Cause::Invalid),
        }
    }

    #[inline]
    fn copied(&self, parsed: &Parsed<'_>, reached: Reached, has_it: bool) -> Departure {
        match reached {
            Reached::Nobody => Departure::nothing(Cause::Stale),
            Reached::Gap => Departure::nothing(Cause::Gap),
            Reached::Copy { new: false, .. } if has_it => Departure::nothing(Cause::Suppressed),
            Reached::Copy { to, .. } => {
                let source = self.config.copying_source();
                Departure::sent(Cause::Copied, copy(parsed, source, &to, &self.shifts))
            }
        }
    }
}
