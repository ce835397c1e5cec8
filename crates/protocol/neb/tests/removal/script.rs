//! Scripts of one operator.

use stentor_neb::removal::{Answer, Ask, Ballot, Cut, Holding, Refusal, Removal, RemovalError};
use stentor_neb::{Config, FaultModel, Mode};

use super::{Member, all, frozen, id, set, value};

/// Sends every pending request until there is none. The processes in `away` cannot be reached.
fn run(removal: &mut Removal, members: &mut [Member], away: &[usize]) -> Result<(), RemovalError> {
    loop {
        let mut asked = false;
        for (process, member) in members.iter_mut().enumerate() {
            let Some(ask) = removal.question(id(process)) else { continue };
            asked = true;
            if away.contains(&process) {
                removal.absent(id(process))?;
            } else {
                removal.answered(id(process), member.ask(&ask))?;
            }
        }
        if !asked {
            return Ok(());
        }
    }
}

fn members(n: usize, has: impl Fn(usize) -> Vec<Holding>) -> Vec<Member> {
    (0..n).map(|me| Member::new(&all(n), me, has(me))).collect()
}

fn remove(members: &mut [Member], targets: &[usize], away: &[usize]) -> Result<Vec<Cut>, RemovalError> {
    let mut removal = Removal::new(&all(members.len()), set(targets), 1)?;
    run(&mut removal, members, away)?;
    assert!(removal.is_done());
    Ok(removal.cuts().to_vec())
}

/// Returns the decision about process 3 of four, if the others hold these values.
fn decided(has: &[Holding; 3]) -> Result<Cut, RemovalError> {
    let mut members = members(4, |me| has.get(me).cloned().into_iter().collect());
    remove(&mut members, &[3], &[3]).map(|cuts| cuts[0].clone())
}

#[test]
fn value_delivered_by_one_is_delivered_by_all() {
    let cut = decided(&[frozen(3, 2, &[(0, 7), (1, 8)]), frozen(3, 1, &[(0, 7)]), frozen(3, 0, &[])]).unwrap();
    assert_eq!(cut, Cut { sender: id(3), upto: 2, values: vec![value(0, 7), value(1, 8)] });
}

#[test]
fn value_held_by_one_is_kept_but_nothing_after_a_gap() {
    let cut = decided(&[frozen(3, 1, &[(0, 7)]), frozen(3, 0, &[(0, 7), (1, 8), (3, 9)]), frozen(3, 0, &[])]).unwrap();
    assert_eq!(cut, Cut { sender: id(3), upto: 2, values: vec![value(0, 7), value(1, 8)] });
}

#[test]
fn conflicting_value_is_kept_only_if_a_member_delivered_it() {
    let two = [frozen(3, 0, &[(0, 7)]), frozen(3, 0, &[(0, 8)]), frozen(3, 0, &[])];
    assert_eq!(decided(&two).unwrap(), Cut { sender: id(3), upto: 0, values: vec![] });
    let one = [frozen(3, 0, &[(0, 7), (1, 1)]), frozen(3, 1, &[(0, 8), (1, 1)]), frozen(3, 0, &[])];
    assert_eq!(decided(&one).unwrap(), Cut { sender: id(3), upto: 2, values: vec![value(0, 8), value(1, 1)] });
}

#[test]
fn stream_ends_where_a_member_saw_two_values() {
    let seen = Holding::Frozen { sender: id(3), head: 1, ended: Some(1), values: vec![value(0, 7), value(1, 8)] };
    let cut = decided(&[seen, frozen(3, 1, &[(0, 7), (1, 8), (2, 9)]), frozen(3, 0, &[])]).unwrap();
    assert_eq!((cut.upto, cut.values), (1, vec![value(0, 7)]));
}

#[test]
fn members_with_different_deliveries_are_named() {
    let error = decided(&[frozen(3, 1, &[(0, 7)]), frozen(3, 1, &[(0, 8)]), frozen(3, 0, &[])]).unwrap_err();
    assert_eq!(error, RemovalError::Split { sender: id(3), index: 0, by: (id(0), id(1)) });
}

#[test]
fn inadmissible_removal_is_refused_before_anything_changes() {
    let streams = |_| vec![frozen(0, 0, &[]), frozen(1, 0, &[])];
    let mut four = members(4, streams);
    let before = four.clone();
    let minority = RemovalError::Minority { remain: 2, members: 4 };
    assert_eq!(remove(&mut four, &[0, 1], &[0, 1]), Err(minority.clone()));
    assert_eq!(minority.to_string(), "2 of 4 members would remain: no majority, so others could remove these as well");
    assert_eq!(remove(&mut four, &[0], &[0, 2]), Err(RemovalError::Unreachable(id(2))));
    assert_eq!(four, before, "nothing changed");
    assert_eq!(Removal::new(&all(4), set(&[]), 1), Err(RemovalError::Nobody));
    assert_eq!(Removal::new(&all(4), set(&[4]), 1), Err(RemovalError::Nobody));
    let quorum = Config::new(4, Mode::Quorum(FaultModel::LyingSender), 1);
    assert_eq!(Removal::new(&quorum, set(&[1]), 1), Err(RemovalError::Mode));
}

#[test]
fn repeated_removal_has_nothing_to_do() {
    let mut five = members(5, |_| vec![frozen(4, 1, &[(0, 7)]), frozen(3, 0, &[])]);
    assert_eq!(remove(&mut five, &[4], &[4]).unwrap()[0].upto, 1);
    let after = five.clone();
    assert_eq!(remove(&mut five, &[4], &[4]), Ok(vec![]), "it was removed before");
    assert_eq!(five, after);
    // The next removal leaves three of four members. A removed process need not answer, and its answers do not count.
    assert_eq!(remove(&mut five, &[3], &[3]).unwrap()[0].sender, id(3));
    assert_eq!(remove(&mut five, &[2], &[3, 4]).unwrap()[0].sender, id(2), "two of three");
    assert_eq!(remove(&mut five, &[1], &[]), Err(RemovalError::Minority { remain: 1, members: 2 }));
}

#[test]
fn next_operator_after_a_crash_reaches_the_same_decision() {
    let has = |me: usize| vec![frozen(4, me as u64, &[(0, 7), (1, 8), (2, 9)]), frozen(3, 0, &[])];
    for after in 0..12 {
        let mut five = members(5, has);
        let mut first = Removal::new(&all(5), set(&[4]), 1).unwrap();
        let mut answers = 0;
        'dies: while !first.is_done() {
            for (process, member) in five.iter_mut().enumerate() {
                let Some(ask) = first.question(id(process)) else { continue };
                let answer = member.ask(&ask);
                answers += 1;
                // The last answer is lost.
                if answers > after {
                    break 'dies;
                }
                first.answered(id(process), answer).unwrap();
            }
        }
        let begun = five.iter().any(|member| !member.seat.standing().fenced.is_empty());
        if begun {
            let half = remove(&mut five.clone(), &[3], &[3]);
            let over = five[..3].iter().all(|member| member.seat.standing().removed.contains(id(4)));
            assert!(over || half == Err(RemovalError::HalfWay(set(&[4]))), "after {after}: {half:?}");
        }
        let targets: &[usize] = if after % 2 == 0 { &[4] } else { &[3, 4] };
        remove(&mut five, targets, &[4]).unwrap();
        for member in &five[..3] {
            assert_eq!(member.seat.cut(id(4)).unwrap().upto, 3, "after {after}");
        }
    }
}

#[test]
fn later_of_two_operators_prevails() {
    let mut member = Member::new(&all(3), 0, vec![frozen(2, 0, &[])]);
    let ballot = |round, operator| Ballot { round, operator };
    let fence = |ballot| Ask::Fence { ballot, base: set(&[]), targets: set(&[2]) };
    let commit = |ballot| Ask::Commit { ballot, cuts: vec![Cut { sender: id(2), upto: 0, values: vec![] }] };
    assert!(matches!(member.ask(&commit(ballot(0, 0))), Answer::Refused(Refusal::NotFenced(_))));
    assert!(matches!(member.ask(&fence(ballot(1, 1))), Answer::Report { .. }));
    assert!(matches!(member.ask(&fence(ballot(1, 2))), Answer::Report { .. }));
    let promised = Answer::Refused(Refusal::Promised(ballot(1, 2)));
    assert_eq!(member.ask(&fence(ballot(1, 1))), promised);
    assert_eq!(member.ask(&commit(ballot(1, 1))), promised);
    assert_eq!(member.ask(&commit(ballot(1, 2))), Answer::Committed);
    let minority = Ask::Fence { ballot: ballot(2, 1), base: set(&[2]), targets: set(&[1]) };
    assert_eq!(member.ask(&minority), Answer::Refused(Refusal::Minority { remain: 1, members: 2 }));
    let ignorant = Ask::Fence { ballot: ballot(2, 1), base: set(&[]), targets: set(&[1]) };
    assert_eq!(member.ask(&ignorant), Answer::Refused(Refusal::Others(set(&[2]))));
    let itself = Ask::Fence { ballot: ballot(2, 1), base: set(&[]), targets: set(&[0]) };
    assert_eq!(member.ask(&itself), Answer::Refused(Refusal::Removed(id(0))));
}
