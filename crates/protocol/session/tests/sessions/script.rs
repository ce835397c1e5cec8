//! Scripts: one for each attack that the rules prevent, and for the properties of a single table.

use stentor_multicast::{GroupId, Incarnation};
use stentor_session::{
    Caller, CallerConfig, CallerError, Envelope, Event, Fate, Kind, Mutant, NotApplied, Outcome, Pair, Reason,
    ReplyRecord, SessionId, SessionLimits, Sessions, Ticket, Why, pairs_tag,
};

use crate::widenings::expired_session_is_not_opened_anew_in_silence;
use crate::world::{TTL, World};

pub(crate) const CONFIG: CallerConfig = CallerConfig { window: 4, ttl: TTL, renewal_timeout: 10 };
pub(crate) const LIMITS: SessionLimits =
    SessionLimits { sessions: 4, ended: 1, window: 4, reply_bytes: 64, ttl: 2 * TTL };
pub(crate) const SESSION: SessionId = SessionId(7);

/// Creates two groups, and a process with a session that is open in `groups`.
pub(crate) fn opened(mutant: Mutant, groups: &[u16]) -> World {
    let mut world = World::new(2, LIMITS, mutant);
    world.start(SESSION, CONFIG, groups);
    settle(&mut world);
    assert!(world.processes[0].caller.is_open());
    world
}

/// Delivers the messages in the order in which they were sent and, after each message, all answers in their order.
pub(crate) fn settle(world: &mut World) {
    while !world.flights.is_empty() || !world.answers.is_empty() {
        deliver(world);
        while !world.answers.is_empty() {
            world.answers.rotate_left(1);
            world.answer(world.answers.len() - 1);
        }
    }
    assert_eq!(world.audit.fault, None);
}

/// Delivers the message that was sent first.
pub(crate) fn deliver(world: &mut World) {
    if !world.flights.is_empty() {
        world.flights.rotate_left(1);
        world.deliver(world.flights.len() - 1, 0, false);
    }
}

/// Advances the time in a group by `by`. Sessions that were not renewed in time expire.
pub(crate) fn pass(world: &mut World, group: usize, by: u64) {
    let group = &mut world.groups[group];
    group.clock += by;
    group.sessions.expire(group.clock, &mut group.machine);
}

/// Delivers the message that was sent first. Returns the first group's outcome.
pub(crate) fn outcome(world: &mut World) -> Outcome {
    world.answers.clear();
    deliver(world);
    ReplyRecord::parse(&world.answers[0].record).expect("a record").outcome
}

pub(crate) fn applied(world: &World, group: usize) -> u32 {
    world.groups[group].machine.applied.values().sum()
}

/// Resolves a ticket. Returns the fate that the process gets.
fn resolved(world: &mut World, process: usize, ticket: &Ticket) -> Result<Vec<u8>, String> {
    let mut payload = Vec::new();
    world.processes[process].caller.resolve(ticket, &mut payload).map_err(|error| error.to_string())?;
    let to: Vec<GroupId> = ticket.groups().collect();
    world.flights.push(crate::world::Flight { to, payload, from: process, request: None });
    while !world.flights.is_empty() {
        deliver(world);
    }
    let answers = std::mem::take(&mut world.answers);
    let caller = &mut world.processes[process].caller;
    for answer in &answers {
        let record = ReplyRecord::parse(&answer.record).expect("a record");
        if let Some(Event::Finished(finished)) = caller.on_reply(answer.group, &record) {
            return match finished.fate {
                Fate::Applied(replies) => {
                    Ok(replies.iter().next().and_then(|reply| reply.bytes).unwrap_or(&[]).to_vec())
                }
                other => Err(format!("{other:?}")),
            };
        }
    }
    Err("nothing".into())
}

/// A process sends requests 1 to 3 and crashes. Its successor sends another request 1.
fn a_successor_counts_anew(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    for _ in 0..3 {
        world.begin(0, &[0]);
    }
    deliver(&mut world);
    world.processes[0].alive = false;
    let late = std::mem::take(&mut world.flights);
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    assert_eq!(world.begin(next, &[0]), Some(1));
    settle(&mut world);
    assert_eq!(applied(&world, 0), 2, "the first request of each process");
    // The other requests of the first process arrive late, and belong to a generation that has ended.
    world.flights = late;
    assert_eq!(outcome(&mut world), Outcome::Refused(Reason::Superseded));
    assert_eq!(applied(&world, 0), 2);
    let tickets = world.tickets.clone();
    world.flights.clear();
    let reply = resolved(&mut world, next, &tickets[0]).expect("the first one was applied");
    assert_eq!(reply.len(), 2 + 8 + 16 + 4 + 8);
    let closed = resolved(&mut world, next, &tickets[1]);
    assert!(closed.as_ref().is_err_and(|told| told.contains("Closed")), "{closed:?}");
}

/// A request is sent once more under another client id.
fn a_request_under_two_client_ids_is_applied_once(mutant: Mutant) {
    let mut world = opened(mutant, &[0, 1]);
    world.begin(0, &[0, 1]);
    world.send_again(0, 1);
    world.start(SessionId(8), CONFIG, &[0]);
    world.flights.swap(1, 2);
    world.flights[2].from = 1;
    settle(&mut world);
    assert_eq!((applied(&world, 0), applied(&world, 1)), (1, 1));
    let mut again = [0, 0];
    for (client, count) in (0..).zip(&mut again) {
        world.groups[0].sessions.replies_of(client, |_| *count += 1);
    }
    assert_eq!(again, [0, 1], "replies go to the client that asked last");
}

/// The table is full in one of two groups.
fn a_table_that_is_full_in_one_group_opens_nothing(mutant: Mutant) {
    let mut world = World::new(2, SessionLimits { sessions: 1, ..LIMITS }, mutant);
    world.start(SESSION, CONFIG, &[1]);
    settle(&mut world);
    let second = world.start(SessionId(8), CONFIG, &[0, 1]);
    let early = world.processes[second].caller.begin(&[GroupId(0)]);
    assert_eq!(early, Err(CallerError::NotOpen), "nothing is sent before all have agreed");
    settle(&mut world);
    assert!(!world.processes[second].caller.is_open());
    assert!(world.groups[1].sessions.end_of(SESSION).is_some(), "nothing is evicted");
    assert_eq!(world.begin(0, &[1]), Some(1));
    settle(&mut world);
    assert_eq!(applied(&world, 1), 1);
}

/// One group is down while the session is renewed in the other.
fn renewals_do_not_wait_for_a_group_that_is_down(mutant: Mutant) {
    let mut world = opened(mutant, &[0, 1]);
    pass(&mut world, 0, TTL / 2 + 10);
    world.renew(0, 1000);
    let to: Vec<_> = world.flights.iter().map(|flight| flight.to.clone()).collect();
    assert_eq!(to, [[GroupId(0)], [GroupId(1)]], "a renewal goes to one group");
    world.flights.truncate(1);
    settle(&mut world);
    // In group 0 the session's end is now later than in group 1.
    pass(&mut world, 0, TTL / 2);
    world.begin(0, &[0]);
    assert_eq!(outcome(&mut world), Outcome::Applied);
    // Both groups judge by the end that the command names, which is the smaller of the two. Only group 1 knows that
    // this end has passed.
    world.begin(0, &[0, 1]);
    assert_eq!(outcome(&mut world), Outcome::Refused(Reason::TooLate));
    assert_eq!((applied(&world, 0), applied(&world, 1)), (1, 0));
}

/// A group is reset during a session.
fn a_group_that_was_reset_is_used_again_after_widening(mutant: Mutant) {
    let mut world = opened(mutant, &[0, 1]);
    world.begin(0, &[0, 1]);
    settle(&mut world);
    world.reset(1, LIMITS);
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    let caller = &world.processes[next].caller;
    assert!(caller.is_open(), "a reset ends no session elsewhere");
    assert_eq!((caller.end_in(GroupId(0)).is_some(), caller.end_in(GroupId(1))), (true, None));
    assert_eq!(world.processes[next].caller.begin(&[GroupId(0), GroupId(1)]), Err(CallerError::SessionNotOpen(1)));
    assert_eq!(world.begin(next, &[0]), Some(1));
    settle(&mut world);
    let ticket = world.tickets[0].clone();
    let told = resolved(&mut world, next, &ticket);
    assert_eq!(told, Err(format!("{:?}", Fate::Unknown(Why::GroupReset(GroupId(1))))));
    let (pairs, until) = (world.pairs(&[1]), world.now() + TTL);
    world.processes[next].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(next);
    settle(&mut world);
    assert_eq!(world.begin(next, &[0, 1]), Some(2));
    settle(&mut world);
    assert_eq!((applied(&world, 0), applied(&world, 1)), (3, 1));
}

/// A ticket of any earlier generation is resolved correctly.
fn replies_outlive_takings_up(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    world.begin(0, &[0]);
    world.begin(0, &[0]);
    deliver(&mut world);
    world.flights.clear();
    let [applied, sent] = [0, 1].map(|at| world.tickets[at].clone());
    for word in 50..53 {
        let next = world.succeed(SESSION, CONFIG, word);
        settle(&mut world);
        let told = resolved(&mut world, next, &applied);
        assert!(told.is_ok(), "{told:?}");
        let told = resolved(&mut world, next, &sent);
        assert!(told.as_ref().is_err_and(|told| told.contains("Closed")), "{told:?}");
    }
}

/// The newest requests of earlier generations are kept, at most a window of them.
#[test]
fn oldest_replies_beyond_a_window_are_forgotten() {
    let mut world = opened(Mutant::None, &[0]);
    let mut process = 0;
    for (word, requests) in [(50, 4), (51, 3), (52, 0)] {
        for _ in 0..requests {
            world.begin(process, &[0]);
        }
        while !world.flights.is_empty() {
            deliver(&mut world);
        }
        world.answers.clear();
        process = world.succeed(SESSION, CONFIG, word);
        settle(&mut world);
    }
    let forgotten = format!("{:?}", Fate::Unknown(Why::Forgotten(GroupId(0))));
    for (at, ticket) in world.tickets.clone().iter().enumerate() {
        let told = resolved(&mut world, process, ticket);
        assert_eq!(told.as_ref().err(), (at < 3).then_some(&forgotten), "{at}");
    }
}

/// Generations without a request also count: at most a window of generations is kept.
#[test]
fn generation_is_forgotten_after_a_window_of_others() {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    deliver(&mut world);
    let ticket = world.tickets[0].clone();
    for word in 50..55 {
        let next = world.succeed(SESSION, CONFIG, word);
        settle(&mut world);
        let told = resolved(&mut world, next, &ticket);
        assert_eq!(told.is_ok(), word < 54, "{word}: {told:?}");
    }
}

/// A command names pairs that are not the session's.
fn a_command_with_other_pairs_is_refused(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    world.begin(0, &[0]);
    world.resolve(0, 0);
    // The first message carries a command, and the second one the question for the command's fate.
    for _ in 0..2 {
        let payload = &mut world.flights[0].payload;
        let (envelope, _) = Envelope::parse(payload).expect("an envelope");
        let mut head = [0; Envelope::BYTES];
        Envelope { pairs: envelope.pairs ^ 1, ..envelope }.write(&mut head);
        payload[..Envelope::BYTES].copy_from_slice(&head);
        assert_eq!(outcome(&mut world), Outcome::WrongPairs);
    }
}

/// A late copy of an opening makes no entry.
fn a_late_copy_opens_nothing(mutant: Mutant) {
    let mut world = World::new(1, LIMITS, mutant);
    world.start(SESSION, CONFIG, &[0]);
    world.send_control(0);
    deliver(&mut world);
    pass(&mut world, 0, 2 * TTL);
    assert!(world.groups[0].machine.ended.contains(&SESSION), "it has expired");
    assert_eq!(outcome(&mut world), Outcome::Refused(Reason::TooLate));
    assert!(world.groups[0].sessions.is_empty());
}

/// A session expires in a group, and is widened into that group again. A renewal from before must not count.
fn a_renewal_from_before_does_not_count(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    pass(&mut world, 0, TTL / 2 + 10);
    world.renew(0, 1000);
    pass(&mut world, 0, TTL);
    let renewal = world.flights.remove(0);
    let (pairs, until) = (world.pairs(&[0]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(0);
    settle(&mut world);
    world.flights.push(renewal);
    assert_eq!(outcome(&mut world), Outcome::SessionNotOpen);
}

/// A repeated `TakeUp` finds the first one, and one with another word is refused.
fn a_repeated_taking_up_finds_the_first(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    let next = world.succeed(SESSION, CONFIG, 50);
    world.send_control(next);
    let rival = Caller::resume(&opened(Mutant::None, &[0]).keys[&SESSION], CONFIG);
    let copy = world.flights.pop().expect("the world has two copies");
    settle(&mut world);
    world.begin(next, &[0]);
    world.send_again(next, 1);
    deliver(&mut world);
    world.flights.insert(0, copy);
    assert_eq!(outcome(&mut world), Outcome::Applied);
    deliver(&mut world);
    assert_eq!(applied(&world, 0), 1);
    let mut rival = rival;
    rival.take_up(51, world.now() + TTL).expect("a key");
    let message = rival.message().map(|message| (message.to.to_vec(), message.payload.to_vec()));
    let (to, payload) = message.expect("a message is in progress");
    world.flights.push(crate::world::Flight { to, payload, from: 0, request: None });
    assert_eq!(outcome(&mut world), Outcome::Refused(Reason::Taken));
}

/// Every copy of a request names the same end of the session as the first one, even after a renewal.
fn a_retry_names_the_end_of_the_first(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    world.begin(0, &[0]);
    let first = world.flights.remove(0);
    pass(&mut world, 0, TTL / 2 + 10);
    world.renew(0, 1000);
    settle(&mut world);
    world.send_again(0, 1);
    assert_eq!(world.flights[0].payload, first.payload);
}

/// A request that was given up keeps its slot in the window.
fn a_lost_request_is_not_passed_over(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    world.begin(0, &[0]);
    world.flights.clear();
    world.lose(0, 1);
    for _ in 0..3 {
        assert!(world.begin(0, &[0]).is_some());
    }
    settle(&mut world);
    assert_eq!(world.processes[0].caller.responded(), 1);
    assert_eq!(world.processes[0].caller.begin(&[GroupId(0)]), Err(CallerError::Busy));
    let ticket = world.tickets[0].clone();
    let told = resolved(&mut world, 0, &ticket);
    assert!(told.is_err_and(|told| told.contains("Closed")));
    assert_eq!(world.processes[0].caller.room(), 4);
}

#[test]
fn group_reset_with_its_table_refuses_until_a_widening() {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    settle(&mut world);
    world.groups[0].incarnation.number += 1;
    world.audit.resets.insert(0);
    world.begin(0, &[0]);
    world.send_again(0, 2);
    assert_eq!(outcome(&mut world), Outcome::WrongPairs);
    settle(&mut world);
    let (pairs, until) = (world.pairs(&[0]), world.now() + TTL);
    world.processes[0].caller.widen(60, &pairs, until).expect("the session is open");
    world.send_control(0);
    settle(&mut world);
    world.begin(0, &[0]);
    assert_eq!(outcome(&mut world), Outcome::Applied);
    settle(&mut world);
    // A request that the earlier incarnation applied cannot be resolved in this one.
    let ticket = world.tickets[0].clone();
    let told = resolved(&mut world, 0, &ticket);
    assert_eq!(told, Err(format!("{:?}", Fate::Unknown(Why::GroupReset(GroupId(0))))));
}

#[test]
fn generation_is_identified_by_its_word() {
    let mut world = opened(Mutant::None, &[0]);
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    world.begin(next, &[0]);
    let (envelope, rest) = Envelope::parse(&world.flights[0].payload).expect("an envelope");
    let mut head = [0; Envelope::BYTES];
    let pairs = pairs_tag(51, world.pairs(&[0]));
    assert_eq!(envelope.pairs, pairs_tag(50, world.pairs(&[0])));
    Envelope { pairs, ..envelope }.write(&mut head);
    world.flights[0].payload = [&head[..], rest].concat();
    assert_eq!(outcome(&mut world), Outcome::WrongPairs);
}

/// Passes all answers to a process. Returns the group that refused its session's command, as the process reports it.
pub(crate) fn refusal(world: &mut World, process: usize) -> Option<(GroupId, Outcome)> {
    let caller = &mut world.processes[process].caller;
    world.answers.iter().find_map(|answer| {
        let record = ReplyRecord::parse(&answer.record).expect("a record");
        match caller.on_reply(answer.group, &record) {
            Some(Event::Answered { refused, .. }) => refused,
            _ => None,
        }
    })
}

/// The first group has forgotten the session, and another process has taken it up in the second one. The session
/// therefore still exists.
#[test]
fn refused_take_up_names_a_group_that_knows_the_session() {
    let mut world = opened(Mutant::None, &[0, 1]);
    let key = world.keys[&SESSION].clone();
    world.groups[0].sessions = Sessions::new(GroupId(0), LIMITS);
    world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    world.keys.insert(SESSION, key);
    let third = world.succeed(SESSION, CONFIG, 51);
    deliver(&mut world);
    assert_eq!(refusal(&mut world, third), Some((GroupId(1), Outcome::Refused(Reason::Taken))));
}

/// A caller names a wrong history of a group when it opens a new session. The refusal must name that reason, so that
/// the caller can try again with the history that it has learnt. The refusal must not be reported as the end of the
/// session.
#[test]
fn opening_with_the_wrong_history_gets_that_reason() {
    let mut world = World::new(2, LIMITS, Mutant::None);
    let opener = world.start(SESSION, CONFIG, &[0, 1]);
    world.groups[0].incarnation.number += 1;
    deliver(&mut world);
    assert_eq!(refusal(&mut world, opener), Some((GroupId(0), Outcome::WrongPairs)));
}

/// The table of one group is full. The entry that the other group made is ended, which frees its room before its time
/// is over.
#[test]
fn refused_opening_can_be_ended_where_it_took_effect() {
    let mut world = World::new(2, SessionLimits { sessions: 1, ..LIMITS }, Mutant::None);
    world.start(SESSION, CONFIG, &[1]);
    settle(&mut world);
    let second = world.start(SessionId(8), CONFIG, &[0, 1]);
    settle(&mut world);
    assert!(world.groups[0].sessions.end_of(SessionId(8)).is_some());
    world.processes[second].caller.end(9).expect("a refused session can be ended");
    world.send_control(second);
    settle(&mut world);
    assert_eq!(world.groups[0].sessions.end_of(SessionId(8)), None);
    assert_eq!(world.processes[second].caller.end(9), Err(CallerError::NotOpen), "once");
    let third = world.start(SessionId(9), CONFIG, &[0]);
    settle(&mut world);
    assert!(world.processes[third].caller.is_open());
}

#[test]
fn forgotten_question_frees_its_slot() {
    let mut world = opened(Mutant::None, &[0]);
    for _ in 0..4 {
        world.begin(0, &[0]);
    }
    settle(&mut world);
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    let caller = &mut world.processes[next].caller;
    let mut tickets = world.tickets.clone();
    tickets.push(Ticket { request: 5, ..tickets[3].clone() });
    let mut question = Vec::new();
    for ticket in &tickets[..4] {
        caller.resolve(ticket, &mut question).expect("there is room");
    }
    assert_eq!(caller.resolve(&tickets[4], &mut question), Err(CallerError::Busy));
    assert_eq!(caller.asked().cloned().collect::<Vec<_>>(), tickets[..4]);
    caller.forget(&tickets[1]);
    assert!(!caller.is_asked(&tickets[1]) && caller.is_asked(&tickets[2]));
    caller.resolve(&tickets[4], &mut question).expect("a slot is free");
}

type Script = fn(Mutant);

const SCRIPTS: &[(&str, Script)] = &[
    ("a successor counts anew", a_successor_counts_anew),
    ("a request under two client ids", a_request_under_two_client_ids_is_applied_once),
    ("a table that is full in one group", a_table_that_is_full_in_one_group_opens_nothing),
    ("renewals", renewals_do_not_wait_for_a_group_that_is_down),
    ("a reset", a_group_that_was_reset_is_used_again_after_widening),
    ("takings up", replies_outlive_takings_up),
    ("other pairs", a_command_with_other_pairs_is_refused),
    ("a late opening", a_late_copy_opens_nothing),
    ("a late renewal", a_renewal_from_before_does_not_count),
    ("a repeated taking up", a_repeated_taking_up_finds_the_first),
    ("a retry", a_retry_names_the_end_of_the_first),
    ("a lost request", a_lost_request_is_not_passed_over),
    ("an expired session", expired_session_is_not_opened_anew_in_silence),
];

#[test]
fn scripts_pass_without_mutant() {
    for (name, script) in SCRIPTS {
        println!("{name}");
        script(Mutant::None);
    }
}

#[cfg(feature = "plants")]
#[test]
fn scripts_find_their_mutants() {
    let hunts: &[(Mutant, Script)] = &[
        (Mutant::TableEnd, renewals_do_not_wait_for_a_group_that_is_down),
        (Mutant::AppliesDuplicates, a_request_under_two_client_ids_is_applied_once),
        (Mutant::ForgetsOnTakeUp, replies_outlive_takings_up),
        (Mutant::EvictsWhenFull, a_table_that_is_full_in_one_group_opens_nothing),
        (Mutant::NumberAlone, a_successor_counts_anew),
        (Mutant::PairsUnchecked, a_command_with_other_pairs_is_refused),
        (Mutant::OpensLate, a_late_copy_opens_nothing),
        (Mutant::RenewsAnother, a_renewal_from_before_does_not_count),
        (Mutant::TakesUpTwice, a_repeated_taking_up_finds_the_first),
        (Mutant::SendsEarly, a_table_that_is_full_in_one_group_opens_nothing),
        (Mutant::RenewsRetries, a_retry_names_the_end_of_the_first),
        (Mutant::PassesOverLost, a_lost_request_is_not_passed_over),
        (Mutant::OpensAnew, expired_session_is_not_opened_anew_in_silence),
    ];
    for &(mutant, script) in hunts {
        assert!(std::panic::catch_unwind(|| script(mutant)).is_err(), "{mutant:?} is not found");
    }
}

#[test]
fn overlong_reply_is_an_overflow_and_stays_applied() {
    let mut world = World::new(1, SessionLimits { reply_bytes: 10, ..LIMITS }, Mutant::None);
    world.start(SESSION, CONFIG, &[0]);
    settle(&mut world);
    world.begin(0, &[0]);
    world.send_again(0, 1);
    assert_eq!(outcome(&mut world), Outcome::Overflow);
    assert_eq!(outcome(&mut world), Outcome::Overflow, "a copy gets the same outcome");
    assert_eq!(applied(&world, 0), 1);
}

#[test]
fn ended_sessions_beyond_the_limit_count_as_open() {
    let mut world = World::new(1, SessionLimits { sessions: 1, ended: 1, ..LIMITS }, Mutant::None);
    for id in 0..3 {
        world.start(SessionId(id + 1), CONFIG, &[0]);
        settle(&mut world);
        let opened = world.processes[id as usize].caller.is_open();
        assert_eq!(opened, id < 2, "session {id}");
        if opened {
            world.processes[id as usize].caller.end(90).expect("the session is open");
            world.send_control(id as usize);
            settle(&mut world);
        }
    }
    pass(&mut world, 0, 2 * TTL);
    let last = world.start(SessionId(9), CONFIG, &[0]);
    settle(&mut world);
    assert!(world.processes[last].caller.is_open());
}

#[test]
fn a_skipped_command_is_decided_and_unknown() {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    world.send_again(0, 1);
    world.deliver(0, 0, true);
    deliver(&mut world);
    assert_eq!(applied(&world, 0), 0);
    let ticket = world.tickets[0].clone();
    world.answers.clear();
    let told = resolved(&mut world, 0, &ticket);
    assert_eq!(told, Err(format!("{:?}", Fate::Unknown(Why::Skipped(GroupId(0))))));
}

#[test]
fn a_halted_group_leaves_a_request_in_doubt() {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    let (envelope, _) = Envelope::parse(&world.flights[0].payload).expect("an envelope");
    let record = ReplyRecord::halted(&envelope, Default::default(), 5);
    let caller = &mut world.processes[0].caller;
    let Some(Event::Finished(finished)) = caller.on_reply(GroupId(0), &record) else { panic!("nothing was reported") };
    assert_eq!(finished.fate, Fate::Unknown(Why::Halted(GroupId(0))));
    assert_eq!(caller.responded(), 1, "it may still be applied");
    settle(&mut world);
    assert_eq!(world.processes[0].caller.responded(), 2);
}

#[test]
fn a_request_that_was_never_sent_is_not_applied() {
    let mut world = opened(Mutant::None, &[0]);
    let caller = &mut world.processes[0].caller;
    let request = caller.begin(&[GroupId(0)]).expect("the session is open");
    assert!(caller.again(request));
    assert_eq!(caller.not_sent(request), None, "another message may carry it");
    let finished = caller.not_sent(request).expect("no message carries it");
    assert_eq!(finished.fate, Fate::NotApplied(NotApplied::NotSent));
    assert_eq!(caller.room(), 4);
}

#[test]
fn new_leader_sends_unacknowledged_replies_again() {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    settle(&mut world);
    world.begin(0, &[0]);
    world.begin(0, &[0]);
    deliver(&mut world);
    deliver(&mut world);
    world.answers.clear();
    let mut requests = Vec::new();
    let sessions = &mut world.groups[0].sessions;
    sessions.replies_of(0, |record| requests.push(ReplyRecord::parse(record).expect("a record").request));
    assert_eq!(requests, [2, 3], "request 1 is acknowledged");
    sessions.replies_of(1, |_| panic!("no session belongs to that client id"));
}

#[test]
fn requests_to_unknown_groups_and_to_none_are_refused() {
    let mut world = opened(Mutant::None, &[0]);
    let caller = &mut world.processes[0].caller;
    assert_eq!(caller.begin(&[]), Err(CallerError::Groups));
    assert_eq!(caller.begin(&[GroupId(0), GroupId(0)]), Err(CallerError::Groups));
    assert_eq!(caller.begin(&[GroupId(9)]), Err(CallerError::SessionNotOpen(9)));
    assert_eq!(caller.widen(1, &[], 1), Err(CallerError::Groups));
    let pair = |group| Pair { group: GroupId(group), incarnation: Incarnation::FIRST };
    let too_many: Vec<_> = (0..=256).map(pair).collect();
    assert_eq!(caller.widen(1, &too_many, 1), Err(CallerError::Groups));
    assert_eq!(CallerError::Groups.to_string(), "name 1 to 256 groups, and each once");
    assert_eq!(caller.room(), 4);
}

#[test]
fn a_session_is_opened_once() {
    let mut world = World::new(1, LIMITS, Mutant::None);
    world.start(SESSION, CONFIG, &[0]);
    let pairs = world.pairs(&[0]);
    let open = |world: &mut World, process: usize| world.processes[process].caller.open(1, &pairs, TTL);
    assert_eq!(open(&mut world, 0), Err(CallerError::Opened), "its opening is under way");
    settle(&mut world);
    assert_eq!(open(&mut world, 0), Err(CallerError::Opened));
    let next = world.succeed(SESSION, CONFIG, 50);
    settle(&mut world);
    assert_eq!(open(&mut world, next), Err(CallerError::Opened));
    let mut resumed = Caller::resume(&world.keys[&SESSION], CONFIG);
    assert_eq!(resumed.open(1, &pairs, TTL), Err(CallerError::Opened));
}

/// The second request of a process is a query.
#[test]
fn query_is_answered_without_resolving() {
    let mut world = opened(Mutant::None, &[0, 1]);
    assert_eq!([world.begin(0, &[0, 1]), world.begin(0, &[0, 1])], [Some(1), Some(2)]);
    let kinds = world.flights.iter().map(|flight| Envelope::parse(&flight.payload).expect("an envelope").0.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [Kind::Command, Kind::Query]);
    settle(&mut world);
    assert!(world.unsettled(0).is_empty());
    // A repeated copy is answered from the table, and so is a later process that asks.
    let (tickets, before) = (world.tickets.clone(), applied(&world, 0));
    assert!(resolved(&mut world, 0, &tickets[1]).is_ok());
    assert_eq!(applied(&world, 0), before);
}

#[test]
fn refused_query_is_reported_without_resolving() {
    let mut world = opened(Mutant::None, &[0]);
    assert_eq!([world.begin(0, &[0]), world.begin(0, &[0])], [Some(1), Some(2)]);
    deliver(&mut world);
    pass(&mut world, 0, 2 * TTL);
    settle(&mut world);
    assert!(world.unsettled(0).is_empty());
    assert_eq!(applied(&world, 0), 1);
}

#[test]
fn message_kinds_have_the_documented_numbers() {
    let all =
        [Kind::Command, Kind::Open, Kind::Renew, Kind::Widen, Kind::TakeUp, Kind::End, Kind::Resolve, Kind::Query];
    assert_eq!(all.map(|kind| kind as u8), [1, 2, 3, 4, 5, 6, 7, 8]);
}
