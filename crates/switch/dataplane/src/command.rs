//! Execution of control packets. The first pass of a control packet reads the registers and decides. Later passes
//! execute the packet; a packet that links members takes one pass for each of them.

use stentor_wire::{NakCode, Psn, Syndrome};

use crate::control::{Control, ControlError, Operation};
use crate::counters::Cause;
use crate::mutant::{Mutant, mutant};
use crate::parsed::Parsed;
use crate::registers::{Progress, Rank, Session, Stage, State};
use crate::step::{Admission, Bridge, Departure, Job, Switch};

/// Decision of the first pass about a control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ruling {
    Silent,
    /// The packet was executed before: acknowledge it again.
    Again,
    Refuse(Cause, NakCode),
    /// The sender has to wait and send the packet again.
    Wait(Cause),
    Take(Job),
}

/// The data that a ruling depends on.
struct Case<'a> {
    rank: Rank,
    session: Session,
    progress: Progress,
    control: Result<Control<'a>, ControlError>,
    psn: Psn,
    who: u8,
    now: u32,
    mutant: Mutant,
}

impl Case<'_> {
    fn held(&self) -> bool {
        self.session.is_held_by(self.who)
    }

    /// Returns the done PSN of the sending rank, and its message count.
    fn done(&self) -> (Psn, u32) {
        if self.held() { (self.progress.last, self.progress.last_msn) } else { (self.rank.done, self.rank.done_msn) }
    }

    fn admission(&self) -> Admission {
        let Session { state, heard, holder, .. } = self.session;
        let Progress { last, last_msn, .. } = self.progress;
        Admission { state, heard, holder, last, last_msn, takes_over: false, keeps: false }
    }

    fn rule(&self) -> Ruling {
        let state = self.session.state;
        let ahead = self.psn.distance(self.done().0);
        if state == State::Silent {
            return Ruling::Silent;
        }
        if ahead <= 0 {
            let overwrites = mutant!(self.mutant, ControlOverwrites) && self.held() && state == State::Active;
            let forgotten = mutant!(self.mutant, DoneForgotten) && !self.held();
            return match &self.control {
                Ok(control) if overwrites && control.head.operation == Operation::Link => {
                    Ruling::Take(Job::Link(self.admission()))
                }
                _ if forgotten => Ruling::Wait(Cause::Busy),
                _ => Ruling::Again,
            };
        }
        if state == State::Poisoned {
            return Ruling::Refuse(Cause::Poisoned, NakCode::RemoteOperational);
        }
        if ahead > 1 && !(mutant!(self.mutant, NoBarrier) && self.held() && state == State::Active) {
            return self.rule_ahead(state);
        }
        // All packets before this one are done. An error in this packet is therefore caused by its sender, and not by a
        // lost packet.
        let Ok(control) = &self.control else {
            return Ruling::Refuse(Cause::BadControl, NakCode::InvalidRequest);
        };
        let head = &control.head;
        let said = head.psn == self.psn && head.msn == self.done().1 && head.sqpn == self.rank.sqpn;
        let said = said || mutant!(self.mutant, NoBarrier);
        if !said || control.mask & !self.session.known != 0 {
            return Ruling::Refuse(Cause::BadControl, NakCode::InvalidRequest);
        }
        if self.held() { self.rule_holder(control) } else { self.rule_other(control.head.operation) }
    }

    /// Rules on a packet while an earlier one is missing or not acknowledged yet.
    fn rule_ahead(&self, state: State) -> Ruling {
        match state {
            State::Active if self.held() => match self.psn.distance(self.session.top) {
                1.. => Ruling::Refuse(Cause::Missing, NakCode::PsnSequence),
                _ => Ruling::Wait(Cause::Barrier),
            },
            State::Linking if self.held() => Ruling::Wait(Cause::Barrier),
            State::Free => Ruling::Refuse(Cause::Missing, NakCode::PsnSequence),
            _ => Ruling::Wait(Cause::Busy),
        }
    }

    fn rule_holder(&self, control: &Control<'_>) -> Ruling {
        let Session { state, lock_id, epoch, pend, .. } = self.session;
        let head = &control.head;
        if head.lock_id != lock_id || head.epoch != 0 && head.epoch != epoch {
            return Ruling::Refuse(Cause::WrongLock, NakCode::InvalidRequest);
        }
        if state == State::Linking && (pend != self.psn || head.operation == Operation::Release) {
            return Ruling::Refuse(Cause::BadControl, NakCode::InvalidRequest);
        }
        Ruling::Take(match head.operation {
            Operation::Release => Job::Release,
            Operation::Link => Job::Link(self.admission()),
            // A query renews the members' numbers and epoch as a LINK does, but keeps their addresses and keys.
            Operation::Query => Job::Link(Admission { keeps: true, ..self.admission() }),
        })
    }

    fn rule_other(&self, operation: Operation) -> Ruling {
        let session = &self.session;
        match (operation, session.state) {
            (Operation::Release, _) | (Operation::Query, State::Free) => Ruling::Take(Job::Release),
            (Operation::Link, State::Free) => Ruling::Take(Job::Link(self.admission())),
            (Operation::Link, _) if self.now.wrapping_sub(session.heard) > session.lease => {
                let admission = Admission { takes_over: true, ..self.admission() };
                Ruling::Take(if self.is_clean() { Job::Retire(admission) } else { Job::Poison(admission) })
            }
            _ => Ruling::Wait(Cause::Busy),
        }
    }

    /// Returns whether all members have executed every packet that the switch replicated for the holder, and the last
    /// one ended a message. The replication of a new packet begins at PSN `top`, so no member is ahead of it. A control
    /// packet is executed only after all packets before it, so a set that is linking is clean.
    fn is_clean(&self) -> bool {
        let Session { state, top, mid, .. } = self.session;
        mutant!(self.mutant, UncleanSteal) || state == State::Linking || top == self.progress.last.next() && !mid
    }
}

impl Switch {
    /// Runs the first pass of a control packet, which reads registers and changes none. It therefore does not renew the
    /// holder's lease; data and executed control packets do. A control packet that has to wait is sent again after the
    /// data before it, and those data renew the lease.
    pub(crate) fn control(&mut self, parsed: &Parsed<'_>) -> Departure {
        let mutant = self.config.mutant;
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (rank, stage) = stage.ranks(parsed.rank, |rank| *rank);
        if rank.ip != parsed.source || rank.ip == 0 {
            return Departure::nothing(Cause::WrongSource);
        }
        let (session, stage) = stage.sessions(|session| *session);
        let (progress, _) = stage.no_members().no_acked().progress(|progress| *progress);
        let control = Control::parse(&parsed.packet);
        let (psn, who, now) = (parsed.psn, parsed.rank, parsed.now);
        let case = Case { rank, session, progress, control, psn, who, now, mutant };
        let done = case.done();
        let to = (parsed.source, parsed.port, rank.sqpn);
        let answer = |syndrome| {
            let own = mutant!(mutant, NakOwnPsn) && matches!(syndrome, Syndrome::RnrNak(_));
            self.answer(to, if own { psn } else { done.0.next() }, syndrome, done.1)
        };
        match case.rule() {
            Ruling::Silent => Departure::nothing(Cause::UnknownSet),
            Ruling::Again => self.again(parsed, rank.sqpn, done),
            Ruling::Refuse(cause, code) => Departure::sent(cause, answer(Syndrome::Nak(code))),
            Ruling::Wait(cause) => Departure::sent(cause, answer(Syndrome::RnrNak(self.config.busy))),
            Ruling::Take(job) => Departure::looped(Cause::ControlTaken, Bridge { epoch: session.epoch, slot: 0, job }),
        }
    }

    /// Runs a later pass of a control packet.
    pub(crate) fn carry_out(&mut self, parsed: &Parsed<'_>, bridge: &Bridge) -> Departure {
        let Ok(control) = Control::parse(&parsed.packet) else { return Departure::nothing(Cause::Stale) };
        match bridge.job {
            Job::Link(admission) => self.link(parsed, bridge, &admission, &control),
            Job::Retire(admission) => self.retire(parsed, bridge, admission),
            Job::Release => self.release(parsed, bridge, &control),
            Job::Poison(admission) => self.poison(parsed, bridge, &admission, &control),
            Job::Copy { .. } | Job::Complain | Job::Break => Departure::nothing(Cause::Stale),
        }
    }

    /// Stores the done PSN of the rank that loses the set. The stored PSN is right even if the take-over does not
    /// happen.
    fn retire(&mut self, parsed: &Parsed<'_>, bridge: &Bridge, admission: Admission) -> Departure {
        if !mutant!(self.config.mutant, DoneForgotten)
            && let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid)
        {
            stage.ranks(admission.holder, |rank| rank.did(admission.last, admission.last_msn));
        }
        Departure::looped(Cause::ControlTaken, Bridge { job: Job::Link(admission), ..*bridge })
    }

    /// Links one member.
    fn link(
        &mut self,
        parsed: &Parsed<'_>,
        bridge: &Bridge,
        admission: &Admission,
        control: &Control<'_>,
    ) -> Departure {
        let mutant = self.config.mutant;
        let (psn, head) = (parsed.psn, &control.head);
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (found, stage) =
            stage.no_ranks().sessions(|session| session.link(parsed, bridge, (admission, control), mutant));
        let Linking::Member { rank, is_last } = found else {
            return self.not_linked(parsed, head.sqpn, head.msn, found);
        };
        let msn = (head.msn + 1) & 0xff_ffff;
        let fresh = control.link(bridge.slot).filter(|_| !admission.keeps);
        let ((), stage) = stage.members(rank, |member| {
            (member.psn_in, member.msn_in, member.version) = (psn.next(), msn, bridge.epoch.wrapping_add(1));
            if let Some(link) = fresh.filter(|_| !mutant!(mutant, OldAddress) || member.rkey == 0) {
                (member.base, member.rkey) = (link.base, link.rkey);
            }
        });
        let ((), stage) = stage.acked(|all| {
            let acked = &mut all[usize::from(rank & 31)];
            (acked.psn, acked.msn) = (psn, msn);
        });
        stage.progress(|progress| {
            let (last, last_msn) = if is_last { (psn, msn) } else { (psn.minus(1), head.msn) };
            *progress = Progress { last, last_msn, ..Progress::default() };
        });
        if is_last {
            let to = (parsed.source, parsed.port, head.sqpn);
            return Departure::sent(Cause::Began, self.answer(to, psn, Syndrome::ACK, msn));
        }
        Departure::looped(Cause::Linked, Bridge { slot: bridge.slot + 1, ..*bridge })
    }

    fn not_linked(&self, parsed: &Parsed<'_>, sqpn: u32, msn: u32, found: Linking) -> Departure {
        match found {
            // The set has changed since the packet was admitted, for example because another rank linked first. The
            // admission still proves that every packet before this one is done, so the RNR NAK names this packet's PSN.
            Linking::Lost => {
                let to = (parsed.source, parsed.port, sqpn);
                let syndrome = Syndrome::RnrNak(self.config.busy);
                Departure::sent(Cause::Busy, self.answer(to, parsed.psn, syndrome, msn))
            }
            _ => Departure::nothing(Cause::Stale),
        }
    }

    fn release(&mut self, parsed: &Parsed<'_>, bridge: &Bridge, control: &Control<'_>) -> Departure {
        let (psn, msn) = (parsed.psn, (control.head.msn + 1) & 0xff_ffff);
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let forgets = mutant!(self.config.mutant, DoneForgotten);
        let (sqpn, stage) = stage.ranks(parsed.rank, |rank| {
            if !forgets {
                rank.did(psn, msn);
            }
            rank.sqpn
        });
        stage.sessions(|session| {
            if session.state == State::Active && session.holder == parsed.rank && session.epoch == bridge.epoch {
                session.state = State::Free;
            }
        });
        let to = (parsed.source, parsed.port, sqpn);
        Departure::sent(Cause::Released, self.answer(to, psn, Syndrome::ACK, msn))
    }

    /// Poisons the set: the holder's lease has expired while its packets are only partly executed, so no rank may use
    /// these queue pairs any more.
    fn poison(
        &mut self,
        parsed: &Parsed<'_>,
        bridge: &Bridge,
        admission: &Admission,
        control: &Control<'_>,
    ) -> Departure {
        let Some(stage) = Stage::enter(&mut self.arrays, parsed.gid) else {
            return Departure::nothing(Cause::UnknownSet);
        };
        let (poisoned, _) = stage.no_ranks().sessions(|session| {
            let same = session.is_as_admitted(bridge, admission);
            if same {
                session.state = State::Poisoned;
            }
            same
        });
        let (cause, syndrome) = if poisoned {
            (Cause::Poisons, Syndrome::Nak(NakCode::RemoteOperational))
        } else {
            (Cause::Busy, Syndrome::RnrNak(self.config.busy))
        };
        let to = (parsed.source, parsed.port, control.head.sqpn);
        Departure::sent(cause, self.answer(to, parsed.psn, syndrome, control.head.msn))
    }
}

/// Result of a LINK pass at the session's stage.
#[derive(Clone, Copy)]
enum Linking {
    Member {
        rank: u8,
        is_last: bool,
    },
    /// The set has changed since the packet was admitted.
    Lost,
    /// Another pass has executed the packet, or the packet is obsolete.
    Stale,
}

impl Rank {
    /// Advances the rank's done PSN. It never moves back.
    fn did(&mut self, psn: Psn, msn: u32) {
        if self.done.is_before(psn) {
            (self.done, self.done_msn) = (psn, msn);
        }
    }
}

impl Session {
    fn is_as_admitted(&self, bridge: &Bridge, admission: &Admission) -> bool {
        let same = self.state == admission.state && self.epoch == bridge.epoch && self.holder == admission.holder;
        same && (!admission.takes_over || self.heard == admission.heard)
    }

    fn link(
        &mut self,
        parsed: &Parsed<'_>,
        bridge: &Bridge,
        (admission, control): (&Admission, &Control<'_>),
        mutant: Mutant,
    ) -> Linking {
        let (slot, psn) = (bridge.slot, parsed.psn);
        let own = self.holder == parsed.rank && self.pend == psn;
        let goes_on = self.state == State::Linking && own && self.epoch == bridge.epoch;
        if slot == 0 && !goes_on {
            if !self.is_as_admitted(bridge, admission) && !mutant!(mutant, LinkingNotGuarded) {
                return if own { Linking::Stale } else { Linking::Lost };
            }
            (self.state, self.holder, self.pend) = (State::Linking, parsed.rank, psn);
            self.lock_id = control.head.lock_id;
            (self.sip, self.sport, self.sqpn) = (parsed.source, parsed.port, control.head.sqpn);
        } else if !goes_on && !mutant!(mutant, LinkingNotGuarded) {
            return Linking::Stale;
        }
        self.heard = parsed.now;
        let n = if admission.keeps { self.n } else { control.len() };
        let at = usize::from(slot & 31);
        let rank = if admission.keeps { Some(self.slots[at]) } else { control.link(slot).map(|link| link.rank) };
        let Some(rank) = rank else { return Linking::Stale };
        self.slots[at] = rank;
        let is_last = slot + 1 >= n;
        if is_last {
            self.n = n;
            self.mask = if admission.keeps { self.mask } else { control.mask };
            (self.epoch, self.state) = (bridge.epoch.wrapping_add(1), State::Active);
            (self.top, self.mid) = (psn.next(), false);
        }
        Linking::Member { rank, is_last }
    }
}
