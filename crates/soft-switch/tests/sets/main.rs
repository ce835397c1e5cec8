//! Sets of processes on `roce`, with the software switch: the contract's cases, and what only a real network has.

mod bed;

use bed::{Bed, Setup};
use stentor_fabric::conformance;

#[test]
fn the_contracts_cases() {
    conformance::suite_of(|count| Bed::new(count, Setup::default()), |name| name.starts_with("set::")).assert_ok();
}
