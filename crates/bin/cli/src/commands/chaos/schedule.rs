//! The schedule of faults. Each fault is drawn from a seed and held back until its precondition holds. This module is
//! pure.

use stentor::config::FabricKind;
use stentor::runtime::ClusterRuntime;
use stentor_fabric_sim::SimRng;
use stentor_support::Failure;

use super::PLACE;
use super::board::{Board, State, minority};
use crate::args::{self, Fault};

/// All kinds of faults.
pub(super) const ALL: [Fault; 8] =
    [Fault::Kill, Fault::Stop, Fault::Cut, Fault::Loss, Fault::Move, Fault::Restart, Fault::Clock, Fault::Client];
/// The pause between two faults, ms: the minimum, and the largest random addition.
const PAUSE_MS: (u64, u64) = (200, 1300);
/// The longest time for which a killed member has no process, ms.
const DOWN_MS: u64 = 2000;
/// The duration of a stop, cut or loss, ms.
const STOP_MS: (u64, u64) = (20, 2000);
const CUT_MS: (u64, u64) = (200, 3000);
/// Duration of a wrong clock, in milliseconds.
const CLOCK_MS: (u64, u64) = (2000, 6000);
/// Offsets of a wrong clock, in milliseconds: 3 to 60 s, or 1 minute to 6 hours.
const WRONG_MS: [(u64, u64); 2] = [(3_000, 60_000), (60_000, 6 * 3_600_000)];
/// Drift of a clock with a wrong rate, in millionths.
const RATE_PPM: (u64, u64) = (100, 2_000);
/// Lost packets per million.
const LOSS_PPM: (u64, u64) = (5_000, 50_000);
/// Upper bound of the bytes that a message of the load takes in a control ring: cells of its stream and of
/// acknowledgements.
const CONTROL_BYTES: u64 = 4 * 64;

/// Returns a fault's name on the command line and in reports.
pub(super) fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "kill",
        Fault::Stop => "stop",
        Fault::Cut => "cut",
        Fault::Loss => "loss",
        Fault::Move => "move",
        Fault::Restart => "restart",
        Fault::Clock => "clock",
        Fault::Client => "client",
    }
}

/// The longest durations of a stop and of a cut, and the bound of clocks. During a longer stop or cut, the messages
/// that wait for the member would fill more than half of a window or of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub(super) stop_ms: u64,
    pub(super) cut_ms: u64,
    /// Largest offset of a clock that counts as right, in milliseconds.
    pub(super) clock_ms: u64,
}

impl Bounds {
    pub(super) fn of(plan: &ClusterRuntime, clients: u16, rate: u32) -> Self {
        let limits = plan.config().limits();
        let each = u64::from(rate).div_ceil(clients.into()).max(1);
        // `bytes` exceeds the mean length of the load's messages.
        let bytes = u64::from(limits.message_bytes) / 8 + 128;
        let fills_ms = [
            u64::from(limits.window) * 1000 / each,
            (u64::from(limits.body_ring_kib) << 10) * 1000 / (bytes * each),
            (u64::from(limits.ring_kib) << 10) * 1000 / (CONTROL_BYTES * u64::from(rate)),
        ];
        let half = fills_ms.into_iter().min().unwrap_or(0) / 2;
        let clock_ms = plan.config().clock_bound().as_millis() as u64;
        Bounds { stop_ms: half.min(STOP_MS.1), cut_ms: half.min(CUT_MS.1), clock_ms }
    }
}

/// Returns the requested faults or, if none were requested, all possible ones except `clock`.
///
/// # Errors
/// Returns an error if a requested fault is not possible, or if no fault is.
pub(super) fn allowed(args: &args::Chaos, plan: &ClusterRuntime, bounds: &Bounds) -> Result<Vec<Fault>, Failure> {
    let largest = plan.config().groups().iter().map(|group| group.members().len()).max().unwrap_or(0);
    let roce = plan.config().fabric() == FabricKind::Roce;
    let why_not = |fault: Fault| match fault {
        Fault::Cut | Fault::Loss if !roce => Some("only fabric `roce` can inject it"),
        Fault::Move if largest < 2 => Some("no group has two members"),
        Fault::Client if !args.service => Some("clients are processes only with --service"),
        Fault::Kill | Fault::Stop | Fault::Cut | Fault::Restart | Fault::Clock if minority(largest) == 0 => {
            Some("no group has three members, so none has a majority without one")
        }
        Fault::Stop if bounds.stop_ms < STOP_MS.0 => {
            Some("the windows or rings fill at once at this rate: lower --rate")
        }
        Fault::Cut | Fault::Loss if bounds.cut_ms < CUT_MS.0 => {
            Some("the windows or rings fill at once at this rate: lower --rate")
        }
        _ => None,
    };
    if let Some((fault, why)) = args.faults.iter().find_map(|fault| Some((*fault, why_not(*fault)?))) {
        let what = format_args!("fault `{}` is impossible here: {why}", name(fault));
        return Err(Failure::usage(what, PLACE, "leave it out of --faults, or change the cluster"));
    }
    // `clock` is not a default, because it needs a package that may be missing.
    let default = |fault: &Fault| args.faults.is_empty() && *fault != Fault::Clock;
    let asked = |fault: &Fault| default(fault) || args.faults.contains(fault);
    let faults: Vec<_> = ALL.into_iter().filter(|fault| asked(fault) && why_not(*fault).is_none()).collect();
    if faults.is_empty() {
        return Err(Failure::usage("no fault is possible in this cluster", PLACE, "give its groups three members"));
    }
    Ok(faults)
}

/// The direction and the peer of a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// `true` if the packets to the member are lost, `false` if the packets from the member are lost.
    pub(super) inward: bool,
    /// A number that selects one of the other processes; `None` selects all.
    pub(super) other: Option<u64>,
}

/// The error of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Skew {
    /// Offset in milliseconds; positive if the clock is ahead.
    pub(super) ahead_ms: i64,
    /// Drift in millionths; positive if the clock is fast.
    pub(super) rate_ppm: i64,
}

impl Skew {
    /// Draws a skew. Half of all are within a quarter of the bound, and half of these have a wrong rate only.
    fn draw([kind, amount, sign]: [u64; 3], bound_ms: u64) -> Self {
        let signed = |least_most| {
            let amount = between(amount, least_most) as i64;
            if sign >> 63 == 1 { -amount } else { amount }
        };
        match kind >> 62 {
            0 => Skew { ahead_ms: signed((0, bound_ms / 4)), rate_ppm: 0 },
            1 => Skew { ahead_ms: 0, rate_ppm: signed(RATE_PPM) },
            kind => Skew { ahead_ms: signed(WRONG_MS[kind as usize - 2]), rate_ppm: 0 },
        }
    }

    /// Returns a skew within a quarter of the bound instead of this one.
    pub(super) fn within(self, bound_ms: u64) -> Self {
        Skew { ahead_ms: self.ahead_ms % (bound_ms as i64 / 4).max(1), ..self }
    }

    /// Limits the drift to what makes the clock of a process of this age wrong by at most a quarter of the bound.
    /// libfaketime counts a drift from the start of the process.
    pub(super) fn of_a_process(self, age_ms: u64, bound_ms: u64) -> Self {
        let most = (bound_ms * 250_000 / (age_ms + CLOCK_MS.1)) as i64;
        Skew { rate_ppm: self.rate_ppm.clamp(-most, most), ..self }
    }

    /// Returns whether the clock is off by more than the bound.
    pub(super) fn is_wrong(self, bound_ms: u64) -> bool {
        self.ahead_ms.unsigned_abs() > bound_ms
    }
}

/// A fault as drawn, independent of the cluster's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) fault: Fault,
    /// The pause after the previous fault, ms.
    pub(super) pause_ms: u64,
    group: u64,
    member: u64,
    /// `true` if the fault targets the leader.
    leader: bool,
    pub(super) ms: u64,
    pub(super) loss_ppm: u32,
    pub(super) cut: Cut,
    pub(super) skew: Skew,
}

/// A fault and its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) step: Step,
    pub(super) member: usize,
}

fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

fn between(word: u64, (least, most): (u64, u64)) -> u64 {
    least + below(word, most.max(least) - least + 1)
}

/// The sequence of faults of one seed.
pub(super) struct Schedule {
    rng: SimRng,
    faults: Vec<Fault>,
    bounds: Bounds,
}

impl Schedule {
    pub(super) fn new(seed: u64, faults: &[Fault], bounds: Bounds) -> Self {
        Schedule { rng: SimRng::new(seed, 0), faults: faults.to_vec(), bounds }
    }

    /// Draws the next fault. Every fault consumes the same number of random words, so that other bounds do not change
    /// the order.
    pub(super) fn draw(&mut self) -> Step {
        let words: [u64; 9] = std::array::from_fn(|_| self.rng.word());
        let fault = self.faults[below(words[0], self.faults.len() as u64) as usize];
        let ms = match fault {
            Fault::Stop => between(words[4], (STOP_MS.0, self.bounds.stop_ms)),
            Fault::Cut | Fault::Loss => between(words[4], (CUT_MS.0, self.bounds.cut_ms)),
            Fault::Clock => between(words[4], CLOCK_MS),
            // The pause before the restart is 0 in one of four draws.
            _ => between(words[4], (0, DOWN_MS + DOWN_MS / 3)).saturating_sub(DOWN_MS / 3),
        };
        Step {
            fault,
            pause_ms: between(words[1], (PAUSE_MS.0, PAUSE_MS.0 + PAUSE_MS.1)),
            group: words[2],
            member: words[3],
            leader: words[5] >> 63 == 1,
            ms,
            loss_ppm: between(words[6], LOSS_PPM) as u32,
            cut: Cut { inward: words[7] >> 63 == 1, other: (words[8] >> 63 == 1).then_some(words[8] << 1) },
            skew: Skew::draw([words[6], words[7], words[8]], self.bounds.clock_ms),
        }
    }
}

impl Step {
    /// Returns a number that selects one of the clients.
    pub(super) fn client(&self) -> u64 {
        self.member
    }

    /// Returns the target of the fault if its precondition holds now. `leaders` has the leader of each group, as
    /// members report it.
    pub(super) fn meant(&self, board: &Board, leaders: &[Option<usize>]) -> Option<Order> {
        if self.fault == Fault::Client {
            // A fault of a client has no target member.
            return Some(Order { step: *self, member: 0 });
        }
        let least = if self.fault == Fault::Move { 2 } else { 3 };
        let fits = |group: &usize| self.fault == Fault::Loss || board.of(*group).len() >= least;
        let groups: Vec<_> = (0..board.groups()).filter(fits).collect();
        let group = *groups.get((self.group % groups.len().max(1) as u64) as usize)?;
        let mut members = board.of(group);
        let any = members.start + (self.member % members.len() as u64) as usize;
        let member = match self.fault {
            Fault::Move => {
                let leader = leaders[group].filter(|leader| board.members()[*leader].is_sound())?;
                let others: Vec<_> = members.filter(|member| *member != leader).collect();
                let to = others[(self.member % others.len() as u64) as usize];
                board.members()[to].is_sound().then_some(to)
            }
            Fault::Loss => {
                let it = &board.members()[any];
                // The losses of a cut member would replace its cut.
                (it.state == State::Ready && !it.cut && !it.lossy).then_some(any)
            }
            _ => {
                // While a clock is wrong, the faults of its group target the member with that clock. A group of three
                // can spare no other member.
                let wrong = members.find(|member| board.members()[*member].wrong.is_some());
                let member = match (wrong, self.leader) {
                    (Some(_), _) if self.fault == Fault::Clock => return None,
                    (Some(wrong), _) => wrong,
                    (None, true) => leaders[group]?,
                    (None, false) => any,
                };
                board.can_spare(member).then_some(member)
            }
        }?;
        Some(Order { step: *self, member })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const BOUNDS: Bounds = Bounds { stop_ms: 1000, cut_ms: 2000, clock_ms: 250 };

    /// Plays a schedule without processes. A failed member returns after a drawn time, and a fault that waits blocks
    /// the next one. Returns the number of faults of each kind.
    fn play(seed: u64, sizes: &[usize], draws: usize) -> BTreeMap<Fault, u64> {
        let mut schedule = Schedule::new(seed, &ALL, BOUNDS);
        let mut world = SimRng::new(seed, 1);
        let mut board = Board::new(sizes);
        let members: usize = sizes.iter().sum();
        (0..members).for_each(|member| board.set(0, member, State::Ready));
        let (mut now, mut counts) = (1, BTreeMap::new());
        let mut ends: Vec<(u64, usize, Fault)> = Vec::new();
        let mut step = schedule.draw();
        while counts.values().sum::<u64>() < draws as u64 {
            now += 1 + world.below(50);
            for (_, member, fault) in ends.extract_if(.., |(end, ..)| *end <= now) {
                match fault {
                    Fault::Client => {}
                    Fault::Clock => board.set_wrong(now, member, false),
                    Fault::Loss => board.set_lossy(member, false),
                    Fault::Cut => board.set_cut(now, member, false),
                    _ => board.set(now, member, State::Ready),
                }
            }
            let leaders: Vec<_> = (0..sizes.len())
                .map(|group| Some(board.of(group).start + world.below(sizes[group] as u64) as usize))
                .collect();
            if let Some(Order { step: played, member }) = step.meant(&board, &leaders) {
                *counts.entry(played.fault).or_default() += 1;
                match played.fault {
                    Fault::Kill | Fault::Restart => board.set(now, member, State::Killed),
                    Fault::Stop => board.set(now, member, State::Stopped),
                    Fault::Clock => board.set_wrong(now, member, true),
                    Fault::Client => {}
                    Fault::Cut => board.set_cut(now, member, true),
                    Fault::Loss => {
                        assert!(!board.members()[member].cut, "a cut member has no losses");
                        board.set_lossy(member, true);
                    }
                    Fault::Move => assert_ne!(Some(member), leaders[board.members()[member].group]),
                }
                ends.push((now + played.ms + world.below(3000), member, played.fault));
                step = schedule.draw();
            }
            for (group, size) in sizes.iter().enumerate() {
                let unsound = board.of(group).filter(|member| !board.members()[*member].is_sound()).count();
                assert!(unsound <= (size - 1) / 2, "{unsound} of {size} at {now}");
                assert!(board.good()[group].is_some());
            }
        }
        counts
    }

    #[test]
    fn the_budget_is_never_exceeded_and_every_fault_is_drawn() {
        for sizes in [&[3, 3][..], &[5], &[1, 2, 3, 4, 5]] {
            let counts = play(7, sizes, 10_000);
            assert!(ALL.iter().all(|fault| counts.get(fault).is_some_and(|n| *n > 1000)), "{sizes:?}: {counts:?}");
        }
    }

    #[test]
    fn two_of_five_are_down_at_the_same_time() {
        let mut board = Board::new(&[5]);
        (0..5).for_each(|member| board.set(0, member, State::Ready));
        board.set(1, 0, State::Killed);
        assert!(board.can_spare(1));
        board.set(2, 1, State::Restarting);
        assert!((2..5).all(|member| !board.can_spare(member)), "a restarted member counts as down until it is ready");
    }

    #[test]
    fn a_drift_makes_no_old_process_wrong_by_more_than_a_quarter_of_the_bound() {
        let drift = |rate_ppm, age_ms| Skew { ahead_ms: 7, rate_ppm }.of_a_process(age_ms, 1000);
        assert_eq!(drift(2000, 60_000), Skew { ahead_ms: 7, rate_ppm: 2000 });
        for rate_ppm in [2000, -2000] {
            let Skew { rate_ppm: limited, .. } = drift(rate_ppm, 3_600_000);
            assert_eq!(limited.signum(), rate_ppm.signum());
            let wrong_us = limited.unsigned_abs() * 3_606;
            assert!((200_000..=250_000).contains(&wrong_us), "{wrong_us} µs");
        }
    }

    #[test]
    fn the_seed_fixes_the_faults_and_their_times() {
        let steps = |seed| {
            let mut schedule = Schedule::new(seed, &ALL, BOUNDS);
            (0..100).map(|_| schedule.draw()).collect::<Vec<_>>()
        };
        assert_eq!(steps(3), steps(3));
        assert_ne!(steps(3), steps(4));
        let within = |step: &Step| match step.fault {
            Fault::Stop => (20..=1000).contains(&step.ms),
            Fault::Cut | Fault::Loss => (200..=2000).contains(&step.ms),
            Fault::Clock => (2000..=6000).contains(&step.ms),
            _ => step.ms <= 2000,
        };
        assert!(steps(3).iter().all(|step| within(step) && (200..=1500).contains(&step.pause_ms)));
        let wrong = steps(3).iter().filter(|step| step.skew.is_wrong(BOUNDS.clock_ms)).count();
        assert!((30..70).contains(&wrong), "{wrong}: half of the clocks are off by more than the bound");
        let at_once =
            steps(3).iter().filter(|step| matches!(step.fault, Fault::Kill | Fault::Restart) && step.ms == 0).count();
        assert!(at_once > 3, "{at_once}");
    }
}
