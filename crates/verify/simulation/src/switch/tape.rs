//! The transcripts of a switch run: its packets, and its registers after each step.

use stentor_fabric_sim::Transcript;
use stentor_switch::Departure;
use stentor_switch::registers::{State, View};

use super::step::Step;
use crate::record::{Record, Recorded};

/// The transcripts of a run.
#[derive(Clone)]
pub(crate) struct Tape {
    packets: Transcript,
    registers: Transcript,
    steps: u64,
    /// The registers in the last line of `registers`.
    seen: Vec<u64>,
}

impl Tape {
    /// Creates an empty tape. Returns `None` if nothing is to be recorded.
    pub(crate) fn new(record: Record) -> Option<Box<Tape>> {
        let (packets, registers) = (record.transcript()?, record.transcript()?);
        Some(Box::new(Tape { packets, registers, steps: 0, seen: Vec::new() }))
    }

    /// Records the beginning of a step.
    pub(super) fn begin(&mut self, step: Step) {
        self.steps += 1;
        let [kind, rank, more] = step_numbers(step);
        self.packets.line("step", &[self.steps, kind, rank, more], &[]);
    }

    /// Records a packet that a host put on its link.
    pub(super) fn sent(&mut self, rank: usize, packet: &[u8]) {
        self.packets.line("sent", &[rank as u64], packet);
    }

    /// Records a packet that arrived at a host.
    pub(super) fn delivered(&mut self, rank: usize, packet: &[u8]) {
        self.packets.line("delivered", &[rank as u64], packet);
    }

    /// Records a pass of a packet through the pipeline: the number of the departure's cause, the bridge to the next
    /// pass, and the packet that left, if one did.
    pub(super) fn passed(&mut self, packet: &[u8], departure: &Departure) {
        let looped = departure.mirror.as_ref().map_or([0; 3], |bridge| [1, bridge.epoch.into(), bridge.slot.into()]);
        let numbers = [&[departure.cause as u64], &looped[..]].concat();
        let left = departure.emission.as_ref().map(|emission| emission.to_vec(packet)).unwrap_or_default();
        self.packets.line("passed", &numbers, &left);
    }

    /// Records the end of a step: the registers of the set, if the step changed any.
    pub(super) fn end(&mut self, view: &View<'_>, hosts: usize) {
        let numbers = register_numbers(view, hosts);
        if numbers != self.seen {
            self.registers.line("registers", &[&[self.steps], &numbers[..]].concat(), &[]);
            self.seen = numbers;
        }
    }

    /// Returns the transcripts.
    pub(super) fn recorded<'a>(self, end: &[u64], violated: impl Iterator<Item = &'a str>) -> Recorded {
        let transcripts = [("packets", Some(self.packets)), ("registers", Some(self.registers))];
        Recorded::default().with(transcripts, end, violated)
    }
}

/// Returns a step as numbers that are stable across versions.
fn step_numbers(step: Step) -> [u64; 3] {
    match step {
        Step::Up(rank, place) => [1, rank.into(), place.into()],
        Step::Loop => [2, 0, 0],
        Step::Down(rank, place) => [3, rank.into(), place.into()],
        Step::LoseUp(rank) => [4, rank.into(), 0],
        Step::LoseLoop => [5, 0, 0],
        Step::LoseDown(rank) => [6, rank.into(), 0],
        Step::RepeatUp(rank) => [7, rank.into(), 0],
        Step::RepeatDown(rank) => [8, rank.into(), 0],
        Step::DamageUp(rank, byte) => [9, rank.into(), byte.into()],
        Step::DamageDown(rank, byte) => [10, rank.into(), byte.into()],
        Step::Timer(rank) => [11, rank.into(), 0],
        Step::Lease => [12, 0, 0],
        Step::Receives(rank) => [13, rank.into(), 0],
        Step::Restart => [14, 0, 0],
    }
}

/// Returns the registers of a set in a fixed order. Arrays by rank contain one entry per host.
fn register_numbers(view: &View<'_>, hosts: usize) -> Vec<u64> {
    let (session, progress) = (view.session, view.progress);
    let state = match session.state {
        State::Silent => 0,
        State::Free => 1,
        State::Linking => 2,
        State::Active => 3,
        State::Poisoned => 4,
    };
    let mut numbers = vec![state, session.known.into(), session.lease.into(), session.holder.into()];
    numbers.extend([session.sip, session.sqpn, session.sport.into(), session.lock_id, session.epoch].map(u64::from));
    numbers
        .extend([session.heard, session.pend.get(), session.n.into(), session.mask, session.top.get()].map(u64::from));
    numbers.push(session.mid.into());
    numbers.extend(session.slots.iter().take(hosts).map(|slot| u64::from(*slot)));
    let progressed = [progress.last.get(), progress.last_msn, progress.complained.into(), progress.rnr.into()];
    numbers.extend(progressed.map(u64::from));
    numbers.extend([progress.bitmap, progress.round.get(), progress.round_msn].map(u64::from));
    for rank in view.ranks.iter().take(hosts) {
        numbers.extend([rank.ip, rank.sqpn, rank.done.get(), rank.done_msn].map(u64::from));
    }
    for member in view.members.iter().take(hosts) {
        numbers.extend([member.ip, member.qpn, member.rkey, member.psn_in.get(), member.psn_out.get()].map(u64::from));
        numbers.extend([member.base, member.msn_in.into(), member.msn_out.into(), member.version.into()]);
    }
    for acked in view.acked.iter().take(hosts) {
        numbers.extend([acked.psn.get(), acked.msn].map(u64::from));
    }
    numbers.extend([u64::from(view.notice.at), view.notice.ever.into()]);
    numbers
}
