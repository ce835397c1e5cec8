//! Errors that scripts report, and errors of the scripts themselves.

use std::time::Duration;

use stentor::sim::{Next, SimCluster, SimError, SimProperty, Turn};

use crate::shop::{Plant, Shop};

fn failure<C: stentor::sim::Script + 'static>(plant: Plant, script: impl Fn(usize) -> C + 'static) -> SimError {
    SimCluster::new(move || Shop::new(plant), script).clients(2).calls(200).run(0..300).expect_err("a script error")
}

/// The client reports an error if it finds a lock occupied a hundred times in a row. The session of the lock's holder
/// ends earlier.
#[test]
fn a_script_finds_a_lock_that_is_never_released() {
    let script = |client: usize| {
        move |turn: &mut Turn<'_>| {
            let group = turn.groups()[0];
            if client == 0 {
                return if turn.seen().len() < 3 { Next::call(group, "la") } else { Next::Done };
            }
            match turn.last().and_then(|last| last.reply()) {
                Some(b"held") => Next::Done,
                _ if turn.seen().len() > 100 => Next::fail("the lock is never released"),
                _ => Next::call(group, "la"),
            }
        }
    };
    let error = failure(Plant::KeepsLocks, script);
    let failure = error.failure().expect("a seed");
    println!("{failure}");
    assert_eq!(failure.property(), SimProperty::Script);
    assert!(failure.witness().contains("never released"));
    let right = SimCluster::new(|| Shop::new(Plant::None), script).calls(200).run(0..30);
    right.expect("locks are released");
}

#[test]
fn invalid_calls_are_reported() {
    let long = failure(Plant::None, |_| |turn: &mut Turn<'_>| Next::call(turn.groups()[0], vec![0; 257]));
    assert!(long.to_string().contains("command_bytes"), "{long}");
    let nowhere = failure(Plant::None, |_| |_: &mut Turn<'_>| Next::call(&[][..], "x"));
    assert!(nowhere.to_string().contains("calls no group"), "{nowhere}");
    assert_eq!(nowhere.failure().map(|failure| failure.property()), Some(SimProperty::Script));
}

#[test]
fn a_script_that_panics_fails_its_seed() {
    let error = failure(Plant::None, |_| |turn: &mut Turn<'_>| -> Next { panic!("at {}", turn.seen().len()) });
    let failure = error.failure().expect("a seed");
    assert!(failure.property() == SimProperty::Panic && failure.witness().contains("at 0"), "{failure}");
}

#[test]
fn a_script_that_never_ends_is_found() {
    let error = failure(Plant::None, |_| |_: &mut Turn<'_>| Next::Wait(Duration::from_micros(50)));
    assert_eq!(error.failure().map(|failure| failure.property()), Some(SimProperty::Liveness), "{error}");
}
