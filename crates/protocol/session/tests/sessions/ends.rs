//! Positions at which sessions expire.

use stentor_multicast::Timestamp;
use stentor_session::{At, Call, Mutant, Reply, Service, SessionId};

use crate::script::{CONFIG, SESSION, opened, pass, settle};

/// A state machine that records its calls: `Some` for the end of a session, `None` for a command.
#[derive(Default)]
struct Calls(Vec<Option<SessionId>>);

impl Service for Calls {
    fn apply(&mut self, _: Call<'_>, _: &mut Reply<'_>) {
        self.0.push(None);
    }

    fn ended(&mut self, session: SessionId) {
        self.0.push(Some(session));
    }
}

/// A session ends at the first position whose time is later than its end, before the command there is applied.
fn session_ends_before_the_first_later_command(mutant: Mutant) {
    let mut world = opened(mutant, &[0]);
    pass(&mut world, 0, 10);
    let other = world.start(SessionId(8), CONFIG, &[0]);
    settle(&mut world);
    world.begin(other, &[0]);
    let (group, flight) = (&mut world.groups[0], &world.flights[0]);
    let end = group.sessions.end_of(SESSION).expect("an open session");
    let mut calls = Calls::default();
    group.sessions.expire(end, &mut calls);
    assert_eq!(calls.0, [], "the time equals the end");
    let at = At {
        time: Timestamp { time: end + 1, group: 0 },
        index: group.index + 1,
        incarnation: group.incarnation,
        destinations: &flight.to,
        client: flight.from as u16,
    };
    group.sessions.deliver(&at, &flight.payload, &mut calls).expect("callers write valid messages");
    assert_eq!(calls.0, [Some(SESSION), None]);
}

#[test]
fn sessions_end_before_the_first_later_command() {
    session_ends_before_the_first_later_command(Mutant::None);
}

#[cfg(feature = "plants")]
#[test]
fn mutants_of_ends_are_found() {
    for mutant in [Mutant::EndsAtItsEnd, Mutant::NeverExpires, Mutant::EndsAfterApply] {
        let found = std::panic::catch_unwind(|| session_ends_before_the_first_later_command(mutant));
        assert!(found.is_err(), "{mutant:?} is not found");
    }
}
