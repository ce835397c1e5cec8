//! Simulates the lock service. Under every fault that Stentor tolerates, a lock must not have two holders at a time.

mod judge;
mod script;
mod vain;

use std::cell::RefCell;
use std::rc::Rc;

use stentor::StateMachine;
use stentor::sim::{SimCluster, SimProperty};
use stentor_lock::Locks;

use judge::{Found, Judge};
use script::script;
use vain::RenewsInVain;

fn cluster<S: StateMachine>(machine: fn() -> S, found: &Rc<RefCell<Found>>) -> SimCluster<S> {
    let (found, judge) = (Rc::clone(found), Rc::new(RefCell::new(Judge::default())));
    let cluster = SimCluster::new(machine, move |client| {
        if client == 0 {
            // A new seed begins.
            *judge.borrow_mut() = Judge::default();
        }
        script(Rc::clone(&judge), Rc::clone(&found))
    });
    cluster.clients(4).calls(40).command_bytes(512).reply_bytes(1024)
}

#[test]
fn lock_has_one_holder_at_a_time() {
    let found = Rc::default();
    let report = cluster(Locks::default, &found).run(0..200).unwrap();
    println!("{report}\n{found:?}");
    let found = found.borrow();
    assert!(found.grants > 1000 && found.renewals > 500 && found.taken > 500, "{found:?}");
    assert!(found.ran_out > 100 && found.notified > 300, "{found:?}");
}

/// The mutant ends a lease before the time that the reply to its holder named. Two sessions may then hold the lock at
/// the same time, and each of them is certain that no other session holds it.
#[test]
fn renewal_that_does_not_move_the_timer_is_found() {
    let error = cluster(RenewsInVain::default, &Rc::default()).run(0..200).expect_err("the mutant is found");
    let failure = error.failure().unwrap_or_else(|| panic!("{error}"));
    println!("{failure}");
    assert_eq!(failure.property(), SimProperty::Script);
    assert!(failure.to_string().contains("was promised until"), "{failure}");
    assert!(failure.repeats());
}
