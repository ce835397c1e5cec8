//! Runs all schedules of small windows. Each packet may be delivered, lost or duplicated, packets may overtake each
//! other, and timers may fire while packets are in flight. If `STENTOR_ROCE_EXHAUSTIVE` is set, windows are larger,
//! which takes minutes.

use crate::common::{Flying, Setup, Side, pair};
use stentor_fabric::{Opcode, QpKind, Status};
use stentor_fabric_roce::endpoint::{Data, Request};

/// Faults that the network and the clock may cause in one run.
#[derive(Clone, Copy)]
struct Budget {
    losses: u32,
    repetitions: u32,
    early_timers: u32,
    /// Number of times that a packet may be delivered before an earlier packet of the same direction.
    overtakings: u32,
}

const NONE: Budget = Budget { losses: 0, repetitions: 0, early_timers: 0, overtakings: 0 };

/// Replays a list of decisions. After the end of the list, chooses the first option and appends it to the list.
#[derive(Default)]
struct Decisions {
    taken: Vec<(usize, usize)>,
    next: usize,
}

impl Decisions {
    fn choose(&mut self, options: usize) -> usize {
        if self.next == self.taken.len() {
            self.taken.push((0, options));
        }
        let (choice, known) = self.taken[self.next];
        assert_eq!(known, options, "the same decisions must lead to the same state");
        self.next += 1;
        choice
    }

    /// Advances to the next list. Returns `false` after the last one.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((choice, options)) = self.taken.pop() {
            if choice + 1 < options {
                self.taken.push((choice + 1, options));
                return true;
            }
        }
        false
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    Timer,
}

fn options(flying: &[(bool, Flying)], budget: Budget) -> Vec<Step> {
    let mut options = Vec::new();
    let reach = if budget.overtakings > 0 { 3 } else { 1 };
    for to_b in [true, false] {
        let places = flying.iter().enumerate().filter(|(_, (direction, _))| *direction == to_b).map(|(n, _)| n);
        for place in places.take(reach) {
            options.push(Step::Deliver(place));
            if budget.repetitions > 0 {
                options.push(Step::Repeat(place));
            }
        }
    }
    if budget.losses > 0 {
        options.extend((0..flying.len()).map(Step::Lose));
    }
    if flying.is_empty() || budget.early_timers > 0 {
        options.push(Step::Timer);
    }
    options
}

fn run(decisions: &mut Decisions, setup: &Setup, mut budget: Budget) {
    let (mut a, mut b) = pair(setup);
    let receive = b.span(0, 256);
    b.endpoint.post_receive(b.qp, receive, 9).unwrap();
    let remote = b.remote(0);
    let data = [7; 300];
    a.post(0, Request::Send { data: Data::Inline(&data[..20]), imm: Some(1) });
    a.post(1, Request::Write { data: Data::Inline(&data), remote: b.remote(64), imm: None });
    let local = a.span(0, 8);
    a.post(2, Request::FetchAdd { local, remote, add: 5 });
    let (mut flying, mut now, mut done): (Vec<(bool, Flying)>, u64, Vec<u64>) = (Vec::new(), 0, Vec::new());
    for _ in 0..200 {
        flying.extend(a.packets(now).into_iter().map(|packet| (true, packet)));
        flying.extend(b.packets(now).into_iter().map(|packet| (false, packet)));
        for completion in a.completions() {
            assert_eq!(completion.status, Status::Success, "{:?}", decisions.taken);
            done.push(completion.id);
        }
        if done.len() == 3 {
            verify(&a, &mut b, &done, decisions);
            return;
        }
        let options = options(&flying, budget);
        let step = options[decisions.choose(options.len())];
        match step {
            Step::Lose(place) => {
                flying.remove(place);
                budget.losses -= 1;
            }
            Step::Deliver(place) => {
                let direction = flying[place].0;
                let overtakes = flying[..place].iter().any(|(other, _)| *other == direction);
                budget.overtakings -= u32::from(overtakes);
                deliver(&flying.remove(place), now, &mut a, &mut b);
            }
            Step::Repeat(place) => {
                budget.repetitions -= 1;
                deliver(&flying[place].clone(), now, &mut a, &mut b);
            }
            Step::Timer => {
                if !flying.is_empty() {
                    budget.early_timers -= 1;
                }
                let next = a.endpoint.next_deadline().into_iter().chain(b.endpoint.next_deadline()).min();
                now = next.expect("a request is outstanding, so a timer runs");
                a.endpoint.tick(now);
                b.endpoint.tick(now);
            }
        }
    }
    panic!("the run has not ended after 200 steps: {:?}", decisions.taken);
}

fn deliver((to_b, packet): &(bool, Flying), now: u64, a: &mut Side, b: &mut Side) {
    if *to_b { b.take(now, packet) } else { a.take(now, packet) }
}

fn verify(a: &Side, b: &mut Side, done: &[u64], decisions: &Decisions) {
    let why = &decisions.taken;
    assert_eq!(done, [0, 1, 2], "{why:?}");
    let received: Vec<_> = b.completions().iter().map(|got| (got.id, got.opcode, got.bytes, got.imm)).collect();
    assert_eq!(received, [(9, Opcode::Recv, 20, Some(1))], "{why:?}");
    let memory = b.bytes(b.shared);
    assert_eq!(memory[..8], 5_u64.to_ne_bytes(), "added once: {why:?}");
    assert!(memory[64..364].iter().all(|byte| *byte == 7), "{why:?}");
    assert!(memory[364..500].iter().all(|byte| *byte == 0), "{why:?}");
    assert_eq!(a.bytes(a.local)[..8], [0; 8], "the old value: {why:?}");
}

/// Runs all schedules. Returns their number.
fn all(setup: &Setup, budget: Budget) -> u64 {
    let (mut decisions, mut runs) = (Decisions::default(), 0);
    loop {
        run(&mut decisions, setup, budget);
        runs += 1;
        if !decisions.advance() {
            return runs;
        }
    }
}

const SMALL: Setup = Setup {
    kind: QpKind::Reliable,
    mtu: 256,
    // The first PSN is chosen so that PSNs wrap in the middle of the WRITE.
    psn_a: 0xff_fffe,
    psn_b: 5,
    window: 4,
    timeout: 10,
    retries: 7,
    rnr_retries: 7,
    rd_atomic: 2,
    rnr_code: 1,
    words: 128,
    apart: false,
};

#[test]
fn every_schedule_with_two_losses_completes() {
    for window in 1..=4 {
        let budget = Budget { losses: 2, ..NONE };
        let runs = all(&Setup { window, ..SMALL }, budget);
        println!("window {window}: {runs} runs");
        assert!(runs > 10, "{runs}");
    }
}

/// Returns the value for the quick test, or for the long one.
fn largest(quick: u32, long: u32) -> u32 {
    if std::env::var_os("STENTOR_ROCE_EXHAUSTIVE").is_some() { long } else { quick }
}

#[test]
fn every_order_of_arrival_completes() {
    for window in 2..=largest(3, 4) {
        let budget = Budget { overtakings: largest(1, 2), ..NONE };
        let runs = all(&Setup { window, ..SMALL }, budget);
        println!("window {window}: {runs} runs");
        assert!(runs > 10, "{runs}");
    }
}

#[test]
fn every_schedule_with_loss_duplicate_and_early_timer_completes() {
    for window in 1..=largest(1, 3) {
        let budget = Budget { losses: 1, repetitions: 1, early_timers: 1, overtakings: 0 };
        let runs = all(&Setup { window, ..SMALL }, budget);
        println!("window {window}: {runs} runs");
        assert!(runs > 100, "{runs}");
    }
}
