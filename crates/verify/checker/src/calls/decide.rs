//! Decides whether a history of calls keeps the service's promise.

use super::history::History;
use super::model::Model;
use super::shrink;
use super::solve::{Solved, solve};
use super::terms::Terms;
use super::verdict::Verdict;

/// Limit of a decision's steps for a history without calls. [`STEPS_PER_CALL`] is added for each call.
const STEPS: u64 = 500_000;
/// Number of steps that each call adds to the limit.
const STEPS_PER_CALL: u64 = 50;

/// Decides whether there is one serial order of all calls that took effect such that
///
/// 1. the model, when it replays the calls in this order, produces every recorded reply;
/// 2. of two calls with a common group, a call that was answered before the other was submitted comes first;
/// 3. of two calls of one session, a call that was answered before the other was submitted comes first, and a call
///    comes after all calls whose positions its session had observed;
/// 4. each stale read is answered from a prefix of its group's order, which contains the requested position and no
///    command that was submitted after the answer;
/// 5. positions of multicast calls rise in each group's order, and are later than those that the session had observed.
///
/// The documentation of the [module](super) has the exceptions for reads. The decision is exact. [`Verdict::Kept`]
/// carries an order, which [`verify`](super::verify) confirms, and [`Verdict::Violated`] means that there is no such
/// order. A search that takes too many steps ends with [`Verdict::TooHard`].
#[must_use]
pub fn decide<M: Model>(history: &History, model: &M) -> Verdict {
    let calls = history.calls();
    let mut budget = STEPS + STEPS_PER_CALL * calls.len() as u64;
    match solve(model, calls, Terms::ALL, &mut budget) {
        Solved::Kept(order) => Verdict::Kept(order),
        Solved::Violated(cause) => Verdict::Violated(shrink::counterexample(model, calls, cause)),
        Solved::TooHard => Verdict::TooHard,
    }
}
