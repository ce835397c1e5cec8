//! Simulates the bank. Under every fault that Stentor tolerates, the sum must be the same at every cut.

mod naive;
mod script;

use std::rc::Rc;

use stentor::sim::{SimCluster, SimProperty};
use stentor_bank::Bank;

use naive::NaiveBank;
use script::{Found, script};

/// Maximum size of a reply, in bytes. This is the default of a cluster.
const REPLY_BYTES: usize = 1024;

fn cluster<S: stentor::StateMachine>(machine: fn() -> S, found: &Rc<Found>) -> SimCluster<S> {
    let found = Rc::clone(found);
    let cluster = SimCluster::new(machine, move |client| script(client, Rc::clone(&found)));
    cluster.groups(3).clients(3).calls(40).command_bytes(512).reply_bytes(REPLY_BYTES)
}

#[test]
fn sum_is_the_same_at_every_cut() {
    let found = Rc::default();
    let report = cluster(Bank::default, &found).run(0..150).unwrap();
    println!("{report}\n{found:?}");
    let Found { cuts, in_flight, done, refused, closed } = &*found;
    assert!(cuts.get() > 2000 && in_flight.get() > 200, "{found:?}");
    assert!(done.get() > 1000 && refused.get() > 100 && closed.get() > 10, "{found:?}");
}

/// Runs a mutant: a naive bank in which each group does its part of a transfer at the first command.
#[test]
fn transfer_by_one_command_is_found_to_make_money() {
    let error = cluster(NaiveBank::default, &Rc::default()).run(0..150).expect_err("the mutant is found");
    let failure = error.failure().unwrap_or_else(|| panic!("{error}"));
    println!("{failure}");
    assert_eq!(failure.property(), SimProperty::Script);
    assert!(failure.to_string().contains("was deposited"), "{failure}");
    assert!(failure.repeats());
}
