//! Two concurrent operators that name different processes: every order of their requests, lost answers, and operators
//! that stop at any point. Only answers of two members are lost: of one of the three equivalent members, and of the
//! member that only the first operator keeps. All members that remain for an operator decide the same about each
//! stream.

use stateright::{Checker, Model, Property};
use stentor_neb::Config;
use stentor_neb::removal::Removal;

use super::{Member, all, frozen, id, set};

const PROCESSES: usize = 5;
/// Processes that the two operators name. The first operator's reports include values that process 3 alone holds.
const TARGETS: [&[usize]; 2] = [&[4], &[3, 4]];

#[derive(Clone, Debug)]
struct Two {
    config: Config,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    members: Vec<Member>,
    /// `None` if the operator was refused, and has stopped.
    operators: [Option<Removal>; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// A process performs an operator's request. The answer may be lost.
    Ask { operator: usize, process: usize, lost: bool },
    /// An operator finds that a process to remove cannot be reached.
    Absent { operator: usize, process: usize },
}

impl Model for Two {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let has = |me: usize| {
            let last = frozen(4, 1, &[(0, 7), (1, 8)]);
            let of_last = if me == 3 { last } else { frozen(4, 0, &[(0, 7)]) };
            vec![of_last, frozen(3, 0, &[])]
        };
        let members = (0..PROCESSES).map(|me| Member::new(&self.config, me, has(me))).collect();
        let operator = |n: usize| Removal::new(&self.config, set(TARGETS[n]), n as u64).ok();
        vec![State { members, operators: [operator(0), operator(1)] }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (operator, removal) in state.operators.iter().enumerate() {
            let Some(removal) = removal else { continue };
            for process in (0..PROCESSES).filter(|process| removal.question(id(*process)).is_some()) {
                if TARGETS[operator].contains(&process) {
                    actions.push(Action::Absent { operator, process });
                } else {
                    actions.push(Action::Ask { operator, process, lost: false });
                    if [0, 3].contains(&process) {
                        actions.push(Action::Ask { operator, process, lost: true });
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let (operator, result) = match action {
            Action::Ask { operator, process, lost } => {
                let removal = state.operators[operator].as_mut()?;
                let answer = state.members[process].ask(&removal.question(id(process))?);
                let result = if lost { Ok(()) } else { removal.answered(id(process), answer) };
                (operator, result)
            }
            Action::Absent { operator, process } => (operator, state.operators[operator].as_mut()?.absent(id(process))),
        };
        if result.is_err() {
            state.operators[operator] = None;
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("agreement", |_, state| {
                // Process 3 may be removed, too. The decisions that it accepted before do not count in that case.
                let gone = state.members[..3].iter().any(|member| {
                    !member.seat.standing().removed.is_empty() && { member.seat.standing().removed.contains(id(3)) }
                });
                let counted = if gone { 3 } else { 4 };
                let mut cuts = state.members[..counted].iter().filter_map(|member| member.seat.cut(id(4)));
                cuts.next().is_none_or(|first| cuts.all(|cut| cut == first))
            }),
            Property::<Self>::sometimes("the first ends", |_, state| {
                state.operators[0].as_ref().is_some_and(Removal::is_done)
            }),
            Property::<Self>::sometimes("the second ends", |_, state| {
                state.operators[1].as_ref().is_some_and(Removal::is_done)
            }),
            Property::<Self>::sometimes("both end", |_, state| {
                state.operators.iter().all(|removal| removal.as_ref().is_some_and(Removal::is_done))
            }),
            Property::<Self>::sometimes("one is refused", |_, state| state.operators.contains(&None)),
        ]
    }
}

#[test]
fn two_operators_decide_the_same() {
    let checker = Two { config: all(PROCESSES) }.checker().spawn_bfs().join();
    println!("two operators: {} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.is_done());
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_accepts_older_ballots_breaks_agreement() {
    let config = Config { mutant: stentor_neb::Mutant::RemovalAnyBallot, ..all(PROCESSES) };
    let checker = Two { config }.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(checker.discovery("agreement").is_some());
}
