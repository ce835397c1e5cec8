//! An operator ends an incarnation of a group.

use stentor_fabric::ProcessId;
use stentor_multicast::{
    AssignedSlot, Ballot, ClientId, ClientState, Destination, GroupId, GroupSet, Incarnation, Joiner, MessageRef,
    Origin, PeerMessage, Rejected, ReplicaConfig, State, Variant, Word,
};

use super::process::{Effect, Process, first_word, head, led_by, nothing};

/// Members 0 to 2; another group's member 3; clients 4 and 5.
const GROUPS: &[usize] = &[3, 1];
const FIRST: Incarnation = Incarnation::FIRST;
const TAKEN: Incarnation = Incarnation { number: 2, tag: 5 };

fn member(me: u16) -> Process {
    Process::new(GROUPS, me, Variant::V2)
}

fn of(incarnation: Incarnation, origins: &[(Incarnation, u64)], ballot: Ballot) -> State {
    let origin = |(incarnation, kept): &(Incarnation, u64)| Origin { incarnation: *incarnation, kept: *kept };
    State {
        synced: ballot,
        incarnation,
        origins: origins.iter().map(origin).collect(),
        known: vec![ballot, led_by(3)],
        incarnations: vec![incarnation, FIRST],
        words: vec![Word::default(), first_word()],
        ..nothing([0; 3])
    }
}

fn reset_by(from: u16, incarnation: Incarnation, ends: Incarnation) -> PeerMessage {
    let ballot = Ballot::new_in(incarnation.number, 1, ProcessId(from));
    PeerMessage::Campaign { ballot, incarnation, ends, resets: true, lives: vec![0; 3] }
}

fn begin(process: &mut Process, ends: Incarnation, empty: bool) -> Result<(Ballot, Incarnation), Rejected> {
    let mut effects = super::process::Recorder::default();
    let ballot = process.replica.reset(ends, empty, &mut effects)?;
    let asked = effects.0.into_iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Campaign { incarnation, resets: true, .. }, .. } => {
            Some(incarnation)
        }
        _ => None,
    });
    Ok((ballot, asked.expect("the candidate asks for promises")))
}

fn is_promise(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::PeerMessage { message: PeerMessage::Promise { .. }, .. }])
}

fn admitted(effects: &[Effect]) -> Vec<Joiner> {
    let admits = effects.iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Install { admits, .. }, .. } => Some(admits.clone()),
        _ => None,
    });
    admits.unwrap_or_default()
}

#[test]
fn member_that_lost_its_majority_continues_with_members_without_memory_that_promise() {
    let mut left = member(1);
    assert_eq!(
        begin(&mut left, TAKEN, false),
        Err(Rejected::Incarnation { named: TAKEN, known: FIRST }),
        "it names the incarnation that it ends"
    );
    assert_eq!(begin(&mut left, FIRST, true), Err(Rejected::Remembers));
    let (ballot, incarnation) = begin(&mut left, FIRST, false).expect("the reset names the incarnation that it ends");
    assert_eq!((ballot, incarnation.number), (Ballot::new_in(2, 1, ProcessId(1)), 2));
    let promise = PeerMessage::Promise { ballot, state: nothing([7, 0, 0]) };
    let effects = left.peer_message(0, &promise).expect("the process accepts the input");
    assert_eq!(admitted(&effects), [Joiner { process: ProcessId(0), life: 7 }], "two of three, one without memory");
    left.peer_message(0, &PeerMessage::Installed { ballot }).expect("the process accepts the input");
    assert!(left.replica.is_leader());
    assert_eq!(left.replica.incarnation(), incarnation);
}

/// The new history continues from the member's deliveries. Messages in flight, including those to other groups, end
/// with the old history.
#[test]
fn reset_keeps_deliveries_and_drops_messages_in_flight() {
    let mut left = member(1);
    left.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
    left.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the process accepts the input");
    left.message(0, 2, &[(0, 1), (1, 0)]).expect("the process accepts the input");
    left.assign(head(2, 1, 2), 2, 0, led_by(0), 2).expect("the process accepts the input");
    assert_eq!(left.replica.delivered(), 1);
    let (ballot, incarnation) = begin(&mut left, FIRST, false).expect("the reset names the incarnation that it ends");
    assert_eq!(left.try_campaign(), Ok(ballot), "the reset continues");
    // Messages that other members hold are lost, too; the reset does not wait for them.
    let mut state = nothing([7, 0, 0]);
    state.clients[1].held = vec![(0, 1)];
    let effects = left.peer_message(0, &PeerMessage::Promise { ballot, state }).expect("the process accepts the input");
    let begun = effects.iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Install { state, .. }, .. } => Some(state),
        _ => None,
    });
    let begun = begun.expect("the candidate sends its state");
    let origins = [Origin { incarnation: FIRST, kept: 0 }, Origin { incarnation, kept: 1 }];
    assert_eq!((begun.delivered, &begun.origins[..]), (1, &origins[..]));
    let under_way = begun.clients[0].entries.iter().find(|entry| entry.sequence == 2);
    assert!(under_way.is_some_and(|entry| entry.no_op && entry.decided), "{begun:?}");
}

/// The next process of a client id began after a message that was held and not assigned. That message is lost, and its
/// slot is the first one of the next process: processes follow each other in their slots.
#[test]
fn processes_begin_in_a_new_history_where_its_assigned_slots_end() {
    let mut left = member(1);
    left.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
    left.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the process accepts the input");
    left.message(0, 2, &[(0, 1)]).expect("the process accepts the input");
    left.succeed(1, 2, 2, false).expect("the process accepts the input");
    let (ballot, _) = begin(&mut left, FIRST, false).expect("the reset names the incarnation that it ends");
    let effects = left
        .peer_message(0, &PeerMessage::Promise { ballot, state: nothing([7, 0, 0]) })
        .expect("the process accepts the input");
    let begun = effects.iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Install { state, .. }, .. } => Some(&state.clients[0]),
        _ => None,
    });
    let begun = begun.expect("the candidate sends its state");
    let firsts: Vec<u64> = begun.successions.iter().map(|heir| heir.first).collect();
    assert_eq!((begun.assigned(), &firsts[..]), (1, &[1][..]), "{begun:?}");
}

#[test]
fn member_that_began_a_reset_and_follows_another_continues_from_that_one() {
    let mut left = member(1);
    let (_, incarnation) = begin(&mut left, FIRST, false).expect("the reset names the incarnation that it ends");
    let ballot = Ballot::new_in(2, 5, ProcessId(2));
    let later = PeerMessage::Campaign { ballot, incarnation, ends: incarnation, resets: false, lives: vec![0; 3] };
    assert!(is_promise(&left.peer_message(2, &later).expect("the process accepts the input")));
    assert_eq!(campaigns(&mut left).2, incarnation);
}

/// An incarnation that the process learnt from another member counts like one that it learnt itself.
#[test]
fn reset_uses_a_number_above_every_remembered_incarnation() {
    let mut process = Process::started_at(GROUPS, 2, 9);
    process
        .peer_message(1, &PeerMessage::Remembered { by: ProcessId(3), incarnation: TAKEN })
        .expect("the process accepts the input");
    assert_eq!(process.replica.reset_ends(), TAKEN);
    let (_, incarnation) = begin(&mut process, TAKEN, true).expect("the reset names the incarnation that it ends");
    assert_eq!(incarnation.number, 3);
}

#[test]
fn remembered_group_without_memory_begins_empty_when_it_is_reset() {
    let mut founder = Process::started_at(GROUPS, 2, 9);
    founder.replica.on_greeting(ProcessId(3), FIRST, TAKEN).expect("no contradiction");
    assert_eq!(founder.replica.reset_ends(), TAKEN);
    assert_eq!(begin(&mut founder, TAKEN, false), Err(Rejected::Joining));
    let known = TAKEN;
    assert_eq!(begin(&mut founder, FIRST, true), Err(Rejected::Incarnation { named: FIRST, known }));
    let (ballot, incarnation) = begin(&mut founder, TAKEN, true).expect("the reset names the incarnation that it ends");
    assert_eq!(incarnation.number, 3);
    let effects = founder
        .peer_message(1, &PeerMessage::Promise { ballot, state: nothing([0, 8, 9]) })
        .expect("the process accepts the input");
    assert_eq!(admitted(&effects), [Joiner { process: ProcessId(1), life: 8 }]);
    assert!(effects.contains(&Effect::BeginHistory), "even if its application had a state");
    assert!(!founder.replica.is_joining());
    assert!(founder.replica.was_remembered(), "an operator gave up what others remember");
    assert_eq!(founder.replica.incarnation(), incarnation);
    founder.peer_message(1, &PeerMessage::Installed { ballot }).expect("the process accepts the input");
    assert!(founder.replica.is_leader());
    // The founder assigns generations above all those of earlier incarnations.
    let generation = founder.open(7, None, 0).iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Close(about), .. } => Some(about.generation),
        _ => None,
    });
    assert_eq!(generation, Some(2 << 20));
}

#[test]
fn member_that_promised_another_end_of_an_incarnation_refuses() {
    let other = Incarnation { number: 3, tag: 6 };
    for (mut process, memory) in [(member(1), true), (Process::joining(GROUPS, 1), false)] {
        assert!(is_promise(
            &process.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")
        ));
        assert!(
            is_promise(&process.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")),
            "it may be lost"
        );
        let refused = process.peer_message(2, &reset_by(2, other, FIRST)).expect("the process accepts the input");
        let [Effect::PeerMessage { to: 2, message: PeerMessage::Refuse { incarnation, .. } }] = refused[..] else {
            panic!("memory: {memory}: {refused:?}")
        };
        assert_eq!(incarnation, TAKEN);
        let same = reset_by(2, Incarnation { number: 2, tag: 6 }, TAKEN);
        assert!(
            !is_promise(&process.peer_message(2, &same).expect("the process accepts the input")),
            "it is not above what it ends"
        );
        assert!(
            is_promise(&process.peer_message(2, &reset_by(2, other, TAKEN)).expect("the process accepts the input")),
            "of that one"
        );
        // The process accepts nothing from a leader of the incarnation that it has promised to end.
        let old = led_by(2);
        let admits = vec![Joiner { process: ProcessId(1), life: 2 }];
        let state = of(FIRST, &[(FIRST, 0)], old);
        let install = PeerMessage::Install { ballot: old, counter: 0, snapshot: false, admits, state };
        let refused = process.peer_message(2, &install).expect("the process accepts the input");
        let refuses = |effect: &Effect| matches!(effect, Effect::PeerMessage { message: PeerMessage::Refuse { incarnation, .. }, .. } if *incarnation == other);
        assert!(refused.iter().all(refuses) && refused.len() == 1, "{refused:?}");
    }
}

#[test]
fn member_that_knows_a_later_incarnation_than_the_named_one_reports_it() {
    let mut process = Process::joining(GROUPS, 1);
    let later = Incarnation { number: 4, tag: 4 };
    process.replica.on_greeting(ProcessId(3), FIRST, later).expect("no contradiction");
    let answer = process.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input");
    let remembered = PeerMessage::Remembered { by: ProcessId(3), incarnation: later };
    assert_eq!(answer, [Effect::PeerMessage { to: 0, message: remembered }]);
}

#[test]
fn member_that_delivered_messages_lost_by_the_reset_ends() {
    let ballot = Ballot::new_in(2, 1, ProcessId(0));
    let install = |origins: &[(Incarnation, u64)], delivered| {
        let state = State { delivered, ..of(TAKEN, origins, ballot) };
        PeerMessage::Install { ballot, counter: 0, snapshot: false, admits: vec![], state }
    };
    for (kept, goes_on) in [(0, false), (1, true)] {
        for promises in [false, true] {
            let mut follower = Process::new(&[3, 1], 1, Variant::V2);
            follower.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
            follower.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the process accepts the input");
            assert_eq!(follower.replica.delivered(), 1);
            if promises {
                assert!(is_promise(
                    &follower.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")
                ));
            }
            follower
                .peer_message(0, &install(&[(FIRST, 0), (TAKEN, kept)], kept))
                .expect("the process accepts the input");
            assert_eq!(follower.replica.ended_by(), (!goes_on).then_some(TAKEN), "{kept} kept");
            assert_eq!(follower.replica.is_superseded(), !goes_on);
        }
    }
    // A candidate does not lead with the state that the reset kept, either.
    let mut leads = Process::new(&[3, 1], 1, Variant::V2);
    leads.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
    leads.assign(head(1, 0, 1), 1, 0, led_by(0), 1).expect("the process accepts the input");
    assert!(is_promise(&leads.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")));
    let (next, ..) = campaigns(&mut leads);
    let kept = of(TAKEN, &[(FIRST, 0), (TAKEN, 0)], ballot);
    assert_eq!(leads.peer_message(0, &PeerMessage::Promise { ballot: next, state: kept }), Ok(vec![]));
    assert_eq!(leads.replica.ended_by(), Some(TAKEN));
    let mut ends = member(1);
    ends.peer_message(0, &install(&[(TAKEN, 0)], 0)).expect("the process accepts the input");
    assert_eq!(ends.replica.ended_by(), None, "it has delivered nothing that is lost");
}

#[test]
fn leader_that_learns_of_another_incarnation_of_its_group_moves_above_it_with_its_own_state() {
    for said in [Incarnation { number: 4, tag: 4 }, Incarnation { number: 1, tag: 9 }] {
        let mut leader = member(0);
        let announce = PeerMessage::Announce {
            group: GroupId(0),
            ballot: Ballot::new_in(said.number, 1, ProcessId(2)),
            incarnation: said,
            origin: said,
        };
        assert_eq!(leader.peer_message(3, &announce), Ok(Vec::new()));
        leader.ticks(u32::from(ReplicaConfig::RETRY_TICKS));
        let asked = leader.peer_message(1, &PeerMessage::Probe { ballot: led_by(0) }).expect("a majority stands by it");
        let moved = asked.iter().find_map(|effect| match effect {
            Effect::PeerMessage { message: PeerMessage::Campaign { incarnation, ends, resets: false, .. }, .. } => {
                Some((*incarnation, *ends))
            }
            _ => None,
        });
        let (incarnation, ends) = moved.expect("the leader campaigns");
        assert_eq!((incarnation.number, ends), (said.number + 1, FIRST));
    }
}

/// Makes a member campaign. Returns the ballot, the incarnation that it asks for, and the one that it continues.
fn campaigns(member: &mut Process) -> (Ballot, Incarnation, Incarnation) {
    let mut effects = super::process::Recorder::default();
    let ballot = member.replica.campaign(&mut effects).expect("a member with memory can campaign");
    let asked = effects.0.into_iter().find_map(|effect| match effect {
        Effect::PeerMessage { message: PeerMessage::Campaign { incarnation, ends, resets: false, .. }, .. } => {
            Some((ballot, incarnation, ends))
        }
        _ => None,
    });
    asked.expect("the candidate asks for promises")
}

#[test]
fn leader_that_moves_above_another_history_keeps_its_state_in_every_attempt() {
    let other = Incarnation { number: 4, tag: 4 };
    let refuse = PeerMessage::Refuse { promised: Ballot::new_in(4, 1, ProcessId(2)), incarnation: other };
    let mut mover = member(0);
    mover.peer_message(2, &refuse).expect("the process accepts the input");
    let (_, moved, ends) = campaigns(&mut mover);
    assert_eq!((moved.number, ends), (5, FIRST));
    let (ballot, again, ends) = campaigns(&mut mover);
    assert_eq!((again, ends), (moved, FIRST), "no member has its state, so no history continues from it");

    let asks = |from, incarnation: Incarnation, ballot, ends, resets| {
        (from, PeerMessage::Campaign { ballot, incarnation, ends, resets, lives: vec![0; 3] })
    };
    let ask = |member: &mut Process, (from, message)| {
        is_promise(&member.peer_message(from, &message).expect("the process accepts the input"))
    };
    let above = Incarnation { number: 6, tag: 7 };
    let of_above = Ballot::new_in(6, 1, ProcessId(2));
    let mut follower = member(1);
    assert!(ask(&mut follower, asks(0, again, ballot, ends, false)), "it has missed the first try");
    assert!(ask(&mut follower, asks(2, above, of_above, FIRST, false)), "ballots decide between those that move");

    let mut follower = member(1);
    assert!(is_promise(&follower.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")));
    assert!(!ask(&mut follower, asks(2, above, of_above, FIRST, false)), "a history that was reset does not continue");
    assert!(ask(&mut follower, asks(2, above, of_above, TAKEN, false)));
}

/// A member that promised a reset leads only with the state that the operator chose. Without that state, it waits for a
/// member that has it.
#[test]
fn member_that_promised_a_reset_leads_only_with_its_state() {
    let mut follower = member(1);
    assert!(is_promise(&follower.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")));
    let (ballot, _, ends) = campaigns(&mut follower);
    assert_eq!(ends, TAKEN);
    let mut before = State { counter: 5, delivered: 1, ..of(FIRST, &[(FIRST, 0)], led_by(0)) };
    before.clients[0] = ClientState { delivered: 1, from: 1, freed: 1, good: 1, ..ClientState::default() };
    let without = follower.peer_message(2, &PeerMessage::Promise { ballot, state: before });
    assert_eq!(without, Ok(vec![]), "a majority, without the chosen state, and it asks for no other");
    // The member with the chosen state holds a message that this one has to ask for.
    let mut chosen = of(TAKEN, &[(FIRST, 0), (TAKEN, 0)], Ballot::new_in(2, 1, ProcessId(0)));
    chosen.clients[0].held = vec![(0, 1)];
    let origins = chosen.origins.clone();
    let held = MessageRef { client: ClientId(0), sequence: 1 };
    let wants = vec![Effect::PeerMessage { to: 0, message: PeerMessage::WantBody(held) }];
    assert_eq!(follower.peer_message(0, &PeerMessage::Promise { ballot, state: chosen }), Ok(wants));
    assert_eq!(follower.peer_message(0, &PeerMessage::Gone(held)), Ok(vec![]), "no other state replaces it");
    let effects = follower.message(0, 1, &[(0, 0)]).expect("the body");
    assert!(effects.contains(&Effect::Begin(ballot)), "{effects:?}");
    assert_eq!(follower.replica.origins(), origins);
}

/// Sends a state, together with the application's state, to process `me`, which has life 2 and no memory. The process
/// then waits for a message body that this state needs.
fn give(process: &mut Process, me: u16, state: State) {
    let waits = AssignedSlot {
        sequence: 2,
        destinations: vec![Destination { group: GroupId(0), slot: 1 }],
        times: vec![9],
        vector: true,
        decided: false,
        no_op: false,
        delivered: false,
        ended: GroupSet::default(),
    };
    let client =
        ClientState { delivered: 1, from: 1, freed: 1, good: 1, entries: vec![waits], ..ClientState::default() };
    let (ballot, admits) = (state.synced, vec![Joiner { process: ProcessId(me), life: 2 }]);
    let state = State { delivered: 1, counter: 2, clock: 9, clients: vec![client, ClientState::default()], ..state };
    let install = PeerMessage::Install { ballot, counter: 2, snapshot: true, admits, state };
    let effects = process.peer_message(ballot.leader().0, &install).expect("the process accepts the input");
    assert!(effects.contains(&Effect::Restore(1)), "{effects:?}");
    assert!(process.replica.is_joining() && process.replica.delivered() == 1);
}

#[test]
fn process_with_a_state_of_another_history_begins_no_new_one() {
    let before = || of(FIRST, &[(FIRST, 0)], Ballot::new(2, ProcessId(2)));
    let ballot = Ballot::new_in(2, 1, ProcessId(0));
    let (ends, lives) = (Incarnation::NONE, vec![0, 2, 0]);
    let founds = PeerMessage::Campaign { ballot, incarnation: TAKEN, ends, resets: false, lives };
    for demand in [reset_by(0, TAKEN, FIRST), founds] {
        let mut process = Process::joining(GROUPS, 1);
        assert!(
            is_promise(&process.peer_message(0, &demand).expect("the process accepts the input")),
            "it has nothing"
        );
        let mut process = Process::joining(GROUPS, 1);
        give(&mut process, 1, before());
        assert_eq!(process.peer_message(0, &demand), Ok(vec![]), "{demand:?}");
        assert_eq!((process.replica.ended_by(), process.replica.is_superseded()), (Some(TAKEN), true), "{demand:?}");
    }
    // The process does not ask others to begin a new history, either.
    let mut process = Process::joining(GROUPS, 1);
    give(&mut process, 1, before());
    let ends = process.replica.reset_ends();
    assert_eq!(begin(&mut process, ends, true), Err(Rejected::Ahead));
    let mut founder = Process::joining(GROUPS, 0);
    give(&mut founder, 0, before());
    founder.ticks(u32::from(ReplicaConfig::FOUNDING_TICKS));
    for other in [1, 2] {
        assert_eq!(founder.peer_message(other, &PeerMessage::Join { life: 7 }), Ok(vec![]));
    }
    assert_eq!(founder.replica.ended_by().map(|by| by.number), Some(2));
}

/// The process has given its promise to the history of this state, so it keeps the state.
#[test]
fn process_keeps_a_state_of_the_reset_that_it_promised() {
    let mut process = Process::joining(GROUPS, 1);
    assert!(is_promise(&process.peer_message(0, &reset_by(0, TAKEN, FIRST)).expect("the process accepts the input")));
    give(&mut process, 1, of(TAKEN, &[(FIRST, 0), (TAKEN, 1)], Ballot::new_in(2, 1, ProcessId(0))));
    let ballot = Ballot::new_in(2, 2, ProcessId(2));
    let later = PeerMessage::Campaign { ballot, incarnation: TAKEN, ends: TAKEN, resets: false, lives: vec![0, 2, 0] };
    let effects = process.peer_message(2, &later).expect("the process accepts the input");
    assert!(is_promise(&effects), "its application does not begin anew: {effects:?}");
    assert!(!process.replica.is_joining());
}

/// A process without memory has learnt of an incarnation. If it gets a state of that incarnation, nothing was given up;
/// if the state is of a later one, a reset happened in between.
#[test]
fn member_that_promised_nothing_distinguishes_a_reset_from_an_admission() {
    for (incarnation, reset) in [(FIRST, false), (TAKEN, true)] {
        let mut process = Process::joining(GROUPS, 1);
        process.replica.on_greeting(ProcessId(3), FIRST, FIRST).expect("no contradiction");
        let ballot = Ballot::new_in(incarnation.number, 1, ProcessId(0));
        let admits = vec![Joiner { process: ProcessId(1), life: 2 }];
        let state = of(incarnation, &[(incarnation, 0)], ballot);
        let install = PeerMessage::Install { ballot, counter: 0, snapshot: false, admits, state };
        process.peer_message(0, &install).expect("the process accepts the input");
        assert_eq!(process.replica.incarnation(), incarnation);
        assert_eq!(process.replica.was_remembered(), reset);
    }
}

fn drops(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Dropped { slot: 0, sequence: 1 })).count()
}

/// Clients wrote to a process that was without memory when its group was reset. The process has promised nothing, and
/// is admitted later. The messages that it holds belong to the old history. A client whose generations start from the
/// beginning again may reuse the ids.
#[test]
fn process_admitted_by_a_new_history_drops_messages_held_before() {
    for (incarnation, forgets) in [(FIRST, false), (TAKEN, true)] {
        let mut process = Process::joining(GROUPS, 1);
        process.message(0, 1, &[(0, 0)]).expect("the message arrives before the process is admitted");
        let ballot = Ballot::new_in(incarnation.number, 2, ProcessId(0));
        let admits = vec![Joiner { process: ProcessId(1), life: 2 }];
        let state = of(incarnation, &[(incarnation, 0)], ballot);
        let install = PeerMessage::Install { ballot, counter: 0, snapshot: false, admits, state };
        let effects = process.peer_message(0, &install).expect("the process accepts the input");
        assert_eq!(drops(&effects), usize::from(forgets), "{effects:?}");
        let again = process.message(0, 1, &[(0, 0), (1, 0)]);
        assert_eq!(again, Ok(Vec::new()), "{incarnation}: it is ignored where it is held already");
        assert_eq!(process.replica.first_held(ClientId(0)), 0);
        // Later messages belong to this history, even if the state arrives again.
        let effects = process.peer_message(0, &install).expect("the process accepts the input");
        assert_eq!(drops(&effects), 0, "{effects:?}");
        // The process holds a message to one group if it kept the first message, and to two groups if it accepted the
        // second.
        let (held, other) = if forgets { (2, 1) } else { (1, 2) };
        process.replica.on_begin(ProcessId(0), ballot).expect("process 0 leads the ballot");
        let mut assign = |groups| process.assign(head(1, 0, groups), 1, 0, ballot, 1);
        assert_eq!(assign(other), Err(Rejected::OtherMessage { client: 0, slot: 0, sequence: 1 }), "{incarnation}");
        assert!(assign(held).is_ok(), "{incarnation}");
    }
}

/// A member with memory also drops held messages, and so does the member that the operator chose.
#[test]
fn members_drop_held_messages_when_their_group_is_reset() {
    let mut follower = member(1);
    follower.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
    follower.peer_message(2, &reset_by(2, TAKEN, FIRST)).expect("the process accepts the input");
    let ballot = Ballot::new_in(2, 1, ProcessId(2));
    let state = of(TAKEN, &[(FIRST, 0), (TAKEN, 0)], ballot);
    let install = PeerMessage::Install { ballot, counter: 0, snapshot: false, admits: Vec::new(), state };
    assert_eq!(drops(&follower.peer_message(2, &install).expect("the process accepts the input")), 1);
    let mut left = member(1);
    left.message(0, 1, &[(0, 0)]).expect("the process accepts the input");
    let (ballot, _) = begin(&mut left, FIRST, false).expect("the reset names the incarnation that it ends");
    let promise = PeerMessage::Promise { ballot, state: nothing([7, 0, 0]) };
    assert_eq!(drops(&left.peer_message(0, &promise).expect("the process accepts the input")), 1);
}
