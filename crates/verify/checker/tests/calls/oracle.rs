//! Compares the decision with an exhaustive search over all orders of tiny histories.
//!
//! The promise is specified here a second time, pair by pair. This specification shares no code with the decision.

use std::collections::BTreeMap;
use std::ops::Range;

use stentor_checker::calls::{Call, History, Kind, Model, Outcome, Position, Rule, Verdict, decide, verify};
use stentor_checker::{Group, GroupSet};

use crate::random::Random;
use crate::service::{KEYS, Service};

fn is_multicast(call: &Call) -> bool {
    matches!(call.kind, Kind::Command | Kind::Ordered)
}

fn is_stale(call: &Call) -> bool {
    matches!(call.kind, Kind::Local | Kind::After(_))
}

fn has_place(call: &Call) -> bool {
    match call.outcome {
        Outcome::Answered { .. } => true,
        Outcome::Unknown => call.kind == Kind::Command,
        Outcome::NotApplied => false,
    }
}

fn share_group(a: &Call, b: &Call) -> bool {
    (0..3).any(|group| a.groups.contains(Group(group)) && b.groups.contains(Group(group)))
}

fn in_time(a: &Call, b: &Call) -> bool {
    a.answered().is_some_and(|answered| answered < b.submitted)
}

/// Returns the positions that a call's session had observed when it submitted the call.
fn observed(calls: &[Call], call: &Call) -> Vec<Position> {
    let same = |c: &&Call| (c.session, c.generation) == (call.session, call.generation) && has_place(c);
    let earlier = calls.iter().filter(same).filter(|c| c.submitted <= call.submitted);
    earlier.flat_map(|c| c.observed.clone()).collect()
}

/// Returns whether `a` must come before `b` because of real time, because of their session, or because the session of
/// `b` had observed the position of `a`, or `b` requests it.
fn must_precede(calls: &[Call], a: &Call, b: &Call) -> bool {
    let strict = !is_stale(a) && !is_stale(b);
    let real_time = in_time(a, b) && share_group(a, b) && (strict || is_stale(a) && b.kind == Kind::Command);
    let session = in_time(a, b)
        && a.session == b.session
        && !is_stale(b)
        && (a.generation == b.generation || a.kind == Kind::Command);
    let seen = is_multicast(a) && !is_stale(b) && a.position().is_some_and(|p| observed(calls, b).contains(&p));
    let asked = match b.kind {
        Kind::After(asked) => {
            a.kind == Kind::Command && share_group(a, b) && a.position().is_some_and(|position| position <= asked)
        }
        _ => false,
    };
    real_time || session || seen || asked
}

/// Returns whether `a` must come before `b` because of the positions in their answers.
fn is_positioned_before(a: &Call, b: &Call) -> bool {
    let (Some(pa), Some(pb)) = (a.position(), b.position()) else { return false };
    if !share_group(a, b) {
        return false;
    }
    match (is_multicast(a), is_multicast(b)) {
        (true, true) => pa < pb,
        (true, false) => a.kind == Kind::Command && pa <= pb,
        (false, true) => b.kind == Kind::Command && pa < pb,
        (false, false) => false,
    }
}

/// Returns whether positions contradict each other or the times, independent of the replies.
fn positions_contradict(calls: &[Call]) -> bool {
    let all = || calls.iter().filter(|call| has_place(call));
    all().enumerate().any(|(i, b)| {
        let Some(of_b) = b.position() else { return false };
        let too_early_for = |known: Position| {
            if is_multicast(b) { of_b.time <= known.time } else { of_b.time < known.time }
        };
        if matches!(b.kind, Kind::After(asked) if of_b.time < asked.time) {
            return true;
        }
        let others = || all().enumerate().filter(move |(j, _)| *j != i);
        let twice = others().any(|(_, a)| is_multicast(a) && is_multicast(b) && a.position() == Some(of_b));
        if twice || is_stale(b) {
            return twice;
        }
        let against_observed = observed(calls, b).into_iter().any(too_early_for);
        let against_other = others().filter(|(_, a)| in_time(a, b)).any(|(_, a)| {
            let Some(of_a) = a.position() else { return false };
            let same_session = a.session == b.session && (a.generation == b.generation || a.kind == Kind::Command);
            let same_group = share_group(a, b) && !is_stale(a);
            let below_group = if is_multicast(b) { of_b <= of_a } else { of_b.time < of_a.time };
            same_session && too_early_for(of_a) || same_group && below_group
        });
        against_observed || against_other
    })
}

/// Returns whether there is an order, by trying all.
fn has_order(calls: &[Call], with_positions: bool) -> bool {
    let before: Vec<Vec<bool>> = calls
        .iter()
        .map(|a| {
            let comes_before = |b: &Call| {
                !std::ptr::eq(a, b) && (must_precede(calls, a, b) || with_positions && is_positioned_before(a, b))
            };
            calls.iter().map(comes_before).collect()
        })
        .collect();
    // Each subset of the calls of unknown outcome is tried.
    let optional: Vec<usize> = (0..calls.len()).filter(|i| calls[*i].outcome == Outcome::Unknown).collect();
    (0..1_u32 << optional.len()).any(|subset| {
        let chosen = |i: &usize| match optional.iter().position(|o| o == i) {
            Some(bit) => subset >> bit & 1 == 1 && has_place(&calls[*i]),
            None => has_place(&calls[*i]),
        };
        let left: Vec<usize> = (0..calls.len()).filter(chosen).collect();
        try_all(calls, &before, &left, &[Service.initial(Group(0)); 3])
    })
}

fn try_all(calls: &[Call], before: &[Vec<bool>], left: &[usize], states: &[[i64; KEYS]; 3]) -> bool {
    left.is_empty()
        || left.iter().any(|next| {
            if left.iter().any(|other| before[*other][*next]) {
                return false;
            }
            let mut states = *states;
            let right = is_right(&calls[*next], &mut states);
            let rest: Vec<usize> = left.iter().copied().filter(|other| other != next).collect();
            right && try_all(calls, before, &rest, &states)
        })
}

/// Applies a call in all its groups. Returns whether each reply is the recorded one.
fn is_right(call: &Call, states: &mut [[i64; KEYS]; 3]) -> bool {
    call.groups.iter().all(|group| {
        let state = &mut states[group.index()];
        let reply = match call.kind {
            Kind::Command => Service.apply(state, group, &call.operation),
            _ => Service.read(state, group, &call.operation),
        };
        call.reply(group).is_none_or(|expected| expected == reply)
    })
}

/// Returns whether these calls in this order prove that the promise is kept.
fn is_order(calls: &[Call], order: &[usize]) -> bool {
    let must_be_there = |i: &usize| calls[*i].answered().is_some();
    let is_against = |at: usize, later: usize| {
        let (a, b) = (&calls[order[at]], &calls[later]);
        must_precede(calls, b, a) || is_positioned_before(b, a)
    };
    let mut states = [Service.initial(Group(0)); 3];
    !positions_contradict(calls)
        && (0..calls.len()).filter(must_be_there).all(|i| order.contains(&i))
        && (0..order.len()).all(|at| !order[at + 1..].iter().any(|later| is_against(at, *later)))
        && order.iter().all(|i| is_right(&calls[*i], &mut states))
}

/// Returns a tiny history: up to six calls with random times. Its replies are those of some order, or nearly so, and so
/// are its positions.
fn tiny(random: &mut Random) -> Vec<Call> {
    let count = 2 + random.below(5) as usize;
    let (span, sessions) = (4 + random.below(14), 1 + random.below(3));
    let with_positions = random.below(3);
    let mut states = [[0; KEYS]; 3];
    let mut older = states;
    let mut calls: Vec<Call> = Vec::new();
    let mut time = 0;
    for _ in 0..count {
        let kind = match random.below(9) {
            0..=4 => Kind::Command,
            5 => Kind::Ordered,
            6 => Kind::Leader,
            7 => Kind::Local,
            _ => {
                let position = calls.iter().filter_map(Call::position).next_back();
                Kind::After(position.unwrap_or(Position { time: random.below(6), group: Group(0) }))
            }
        };
        let several = matches!(kind, Kind::Command | Kind::Ordered) && random.percent(45);
        let first = random.below(3) as u16;
        let mut groups: GroupSet = [Group(first)].into_iter().collect();
        if several {
            groups.insert(Group((first + 1 + random.below(2) as u16) % 3));
        }
        let (key, value) = (random.below(2), 1 + random.below(2));
        let operation = match (kind, random.below(3)) {
            (Kind::Command, 0) => format!("put {key} {value}"),
            (Kind::Command, 1) => format!("add {key} {value}"),
            (Kind::Command, _) => format!("push {key} {value}"),
            (_, 0) => "sum".to_owned(),
            _ => format!("get {key}"),
        };
        let operation = operation.into_bytes();
        if random.percent(40) {
            older = states;
        }
        let stale = matches!(kind, Kind::Local | Kind::After(_)) && random.percent(60);
        let replies = groups.iter().map(|group| {
            let reply = match kind {
                Kind::Command => Service.apply(&mut states[group.index()], group, &operation),
                _ if stale => Service.read(&older[group.index()], group, &operation),
                _ => Service.read(&states[group.index()], group, &operation),
            };
            let spoilt = random.percent(6).then(|| random.below(4).to_string().into_bytes());
            (group, spoilt.unwrap_or(reply))
        });
        let replies = replies.collect();
        time += 1 + random.below(3);
        let at = random.percent(85).then_some(Position { time, group: groups.iter().next().unwrap() });
        let position = at.filter(|_| with_positions > 0).map(|position| {
            let moved = with_positions == 2 && random.percent(15);
            if moved { Position { time: random.below(12), ..position } } else { position }
        });
        let submitted = random.below(span);
        // Submission times loosely follow the order that produced the replies.
        let submitted = if random.percent(60) { (time + random.below(3)).saturating_sub(2) } else { submitted };
        let outcome = match random.below(12) {
            0 => Outcome::Unknown,
            1 => Outcome::Unknown,
            2 if random.percent(30) => Outcome::NotApplied,
            _ => Outcome::Answered { at: submitted + random.below(5), replies, position },
        };
        let others: Vec<Position> = calls.iter().filter_map(Call::position).collect();
        let observed = if !others.is_empty() && random.percent(15) { vec![*random.pick(&others)] } else { Vec::new() };
        let (session, generation) = (random.below(sessions), u64::from(random.percent(15)));
        calls.push(Call { session, generation, submitted, groups, operation, kind, outcome, observed });
    }
    calls
}

#[test]
fn all_orders_of_tiny_histories_agree() {
    agree(0..20_000);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn all_orders_of_many_tiny_histories_agree() {
    agree(20_000..400_000);
}

/// Verifies orders that are correct or nearly correct: the order of the decision, or else the order that produced the
/// replies. Each is also tested with two neighbours swapped and with one call removed.
#[test]
fn a_witness_is_confirmed_exactly_if_it_is_right() {
    let mut confirmed = [0; 2];
    for seed in 0..10_000 {
        let calls = tiny(&mut Random(seed));
        let history = History::try_from(calls.clone()).unwrap();
        let order = match decide(&history, &Service) {
            Verdict::Kept(order) => order,
            _ => (0..calls.len()).filter(|i| has_place(&calls[*i])).collect(),
        };
        let swapped = (1..order.len()).map(|at| {
            let mut order = order.clone();
            order.swap(at - 1, at);
            order
        });
        let without = (0..order.len()).map(|at| [&order[..at], &order[at + 1..]].concat());
        for order in swapped.chain(without).chain([order.clone()]) {
            let (found, right) = (verify(&history, &Service, &order), is_order(&calls, &order));
            assert_eq!(found.is_ok(), right, "seed {seed}: {order:?}: {found:?}\n{calls:#?}");
            confirmed[usize::from(right)] += 1;
        }
    }
    assert!(confirmed.iter().all(|count| *count > 10_000), "refused, confirmed: {confirmed:?}");
}

fn agree(seeds: Range<u64>) {
    let (mut kept, mut violated) = (0, 0);
    let mut rules = BTreeMap::new();
    for seed in seeds.clone() {
        let mut random = Random(seed);
        let calls = tiny(&mut random);
        let history = History::try_from(calls.clone()).unwrap();
        let text = || calls.iter().map(Call::to_string).collect::<Vec<_>>().join("\n");
        let is_kept = !positions_contradict(&calls) && has_order(&calls, true);
        match decide(&history, &Service) {
            Verdict::Kept(order) => {
                assert!(is_kept, "seed {seed}: kept as {order:?}\n{}", text());
                verify(&history, &Service, &order)
                    .unwrap_or_else(|e| panic!("seed {seed}: {order:?}: {e}\n{}", text()));
                kept += 1;
            }
            Verdict::Violated(example) => {
                assert!(!is_kept, "seed {seed}: violated as {example}\n{}", text());
                // If an order exists without regard to positions, only the positions can contradict.
                let by_replies = has_order(&calls, false);
                assert!(
                    !by_replies || example.rule == Rule::Position || is_about_positions(&calls),
                    "seed {seed}: {example}"
                );
                assert!(
                    is_enough(&calls, &example.calls),
                    "seed {seed}: {:?} is not enough\n{}",
                    example.calls,
                    text()
                );
                *rules.entry(example.rule).or_insert(0) += 1;
                violated += 1;
            }
            Verdict::TooHard => panic!("seed {seed}: too hard\n{}", text()),
        }
    }
    println!("{kept} kept, {violated} violated: {rules:?}");
    let fifth = (seeds.end - seeds.start) / 5;
    assert!(kept > fifth && violated > fifth, "{kept} kept, {violated} violated");
    assert!(rules.len() >= 6, "{rules:?}");
}

/// Returns whether a call is a stale read or has observed a position. Another rule than [`Rule::Position`] may then
/// report a contradiction of positions.
fn is_about_positions(calls: &[Call]) -> bool {
    calls.iter().any(|call| matches!(call.kind, Kind::After(_)) || !call.observed.is_empty() || is_stale(call))
}

/// Returns whether the calls of a counter-example contradict the promise, whatever the other calls did. For this, the
/// outcome of all other calls becomes unknown. The observations that commands carry still count, and those that reads
/// carry do not.
fn is_enough(calls: &[Call], example: &[usize]) -> bool {
    let mut weaker = calls.to_vec();
    for (index, call) in weaker.iter_mut().enumerate() {
        if !example.contains(&index) && call.outcome != Outcome::NotApplied {
            call.outcome = Outcome::Unknown;
        }
    }
    positions_contradict(&weaker) || !has_order(&weaker, true)
}
