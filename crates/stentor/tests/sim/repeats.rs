//! A seed reproduces its run.

use crate::shop::{Plant, shop};

#[test]
fn a_seed_reproduces_its_trace() {
    for seed in [0, 7, 0x1234] {
        let (one, two) = (shop(Plant::None).replay(seed).unwrap(), shop(Plant::None).replay(seed).unwrap());
        assert_eq!(one, two);
        assert!(one.trace().len() > 100 && one.digest() != 0 && one.failure().is_none());
    }
    let other = |seed| shop(Plant::None).replay(seed).unwrap().digest();
    assert_ne!(other(1), other(2));
}

#[test]
fn a_failure_repeats_and_reports_that() {
    let failure = |plant| shop(plant).run(0..1000).unwrap_err().failure().unwrap().clone();
    let (one, two) = (failure(Plant::ForgetsLocks), failure(Plant::ForgetsLocks));
    assert!(one == two && one.repeats());
    let replayed = shop(Plant::ForgetsLocks).replay(one.seed()).unwrap();
    assert_eq!(replayed.failure(), Some(&one));
}
