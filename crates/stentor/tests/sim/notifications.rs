//! Notifications under simulation.

use std::time::Duration;

use stentor::Notification;
use stentor::sim::{Next, SimCluster, SimFailure, SimProperty, Turn};

use crate::shop::{Plant, Shop, reading_shop, shop};

#[test]
fn notifications_arrive_and_lost_ones_are_reported() {
    let report = shop(Plant::None).run(0..200).unwrap();
    println!("{report}");
    assert!(report.count("notifications") > 2000 && report.count("notifications missed") > 50, "{report}");
}

/// A client that holds a lock is notified of each change of the count, or learns that it missed notifications.
#[test]
fn a_script_follows_its_notifications() {
    let script = |client: usize| {
        let (mut judged, mut known) = (0, (0, 0));
        move |turn: &mut Turn<'_>| {
            let group = turn.groups()[0];
            for news in &turn.notifications()[judged..] {
                judged += 1;
                match news {
                    Notification::Sent { position, bytes, .. } => {
                        let text = String::from_utf8_lossy(bytes);
                        let count: u64 = text.split(": ").nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
                        if (position.index, count) < known || count == 0 && text.starts_with("added") {
                            return Next::fail(format!("{text} at {} comes after {known:?}", position.index));
                        }
                        known = (position.index, count);
                    }
                    Notification::Missed { count, .. } if *count > 0 => {}
                    other => return Next::fail(format!("{other:?}")),
                }
            }
            match client {
                0 if turn.seen().is_empty() => Next::call(group, "la"),
                0 if turn.time() < Duration::from_millis(4) => Next::Wait(Duration::from_micros(50)),
                0 => Next::Done,
                _ => Next::call(group, [b'+', 1]),
            }
        }
    };
    let report = SimCluster::new(|| Shop::new(Plant::None), script).clients(3).run(0..100).unwrap();
    assert!(report.count("notifications") > 1000 && report.count("notifications missed") > 0, "{report}");
}

#[test]
fn trace_contains_notifications() {
    let run = shop(Plant::None).replay(7).unwrap();
    let trace = run.trace().join("\n");
    for words in ["notifies session", "is notified by group", "added: "] {
        assert!(trace.contains(words), "{words}:\n{trace}");
    }
}

#[test]
fn process_numbers_rise_after_a_death() {
    let script = |_| {
        let mut process = 0;
        move |turn: &mut Turn<'_>| {
            let (before, now) = (process, turn.process());
            process = now;
            if now < before { Next::fail("it decreased") } else { Next::call(turn.groups()[0], [b'+', 1]) }
        }
    };
    SimCluster::new(|| Shop::new(Plant::None), script).run(0..50).unwrap();
}

fn find(plant: Plant) -> SimFailure {
    let error = reading_shop(plant).run(0..1000).expect_err("a mutant");
    let failure = error.failure().unwrap_or_else(|| panic!("{plant:?}: {error}")).clone();
    println!("{plant:?} at seed {}:\n{failure}", failure.seed());
    assert!(failure.repeats());
    failure
}

#[test]
fn differing_notifications_are_found() {
    for plant in [Plant::NotifiesStale, Plant::SilentOnceRestored, Plant::NotifiesTwice] {
        assert_eq!(find(plant).property(), SimProperty::Notifications, "{plant:?}");
    }
}

/// A machine that is wrong everywhere in the same way agrees with itself, but not with a model. Notifications are not
/// compared with those of a model that sends none.
#[test]
fn a_model_finds_wrong_notifications() {
    let stale = || reading_shop(Plant::NotifiesStale).members(1).groups(1);
    let found = stale().model(|| Shop::new(Plant::None)).run(0..50).expect_err("a mutant");
    assert_eq!(found.failure().map(|failure| failure.property()), Some(SimProperty::Notifications), "{found}");
    stale().model(|| Silent(Shop::new(Plant::None))).run(0..50).expect("the model notifies nobody");
}

/// A model that omits notifications.
struct Silent(Shop);

impl stentor::StateMachine for Silent {
    type Frozen = crate::shop::Written;

    fn apply(&mut self, at: &stentor::Context<'_>, command: &[u8], reply: &mut stentor::Reply) {
        self.0.silent(|shop| shop.apply(at, command, reply));
    }

    fn read(&self, at: &stentor::ReadContext<'_>, query: &[u8], reply: &mut stentor::Reply) {
        self.0.read(at, query, reply);
    }

    fn session_ended(&mut self, at: &stentor::Context<'_>, session: stentor::SessionId) {
        self.0.silent(|shop| shop.session_ended(at, session));
    }

    fn freeze(&self) -> Self::Frozen {
        self.0.freeze()
    }

    fn restore(&mut self, from: &mut dyn std::io::Read) -> std::io::Result<()> {
        self.0.restore(from)
    }
}
