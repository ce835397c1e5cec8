//! Decides whether an order exists, one part at a time.

use super::call::Call;
use super::graph::{Graph, Why};
use super::model::Model;
use super::outcome::Outcome;
use super::parts::{Part, apart, merged};
use super::positions::{Contradiction, contradiction};
use super::ranks::Ranks;
use super::search::{Found, Search};
use super::terms::Terms;
use crate::ids::{Group, GroupSet};

/// Maximum number of consecutive commands of unknown outcome in the first search.
const SHORT_ROW: u32 = 1;
/// Maximum number of consecutive commands of unknown outcome in a search along the positions, which leave few other
/// choices.
const LONGER_ROW: u32 = 3;

/// The decision about some calls.
#[derive(Debug)]
pub(super) enum Solved {
    Kept(Vec<usize>),
    Violated(Cause),
    TooHard,
}

/// The reason why there is no order.
#[derive(Debug)]
pub(super) enum Cause {
    /// Positions contradict each other, or the times of the calls.
    Positions(Contradiction),
    /// Each of these calls must come before the next one, and the last before the first.
    Cycle(Vec<(u32, Why)>),
    /// Every order of these calls contradicts a reply. The calls are those of one part, or their projection on one
    /// group.
    Replies {
        calls: Vec<Call>,
        /// The numbers of the calls in the history.
        numbers: Vec<u32>,
    },
}

/// Decides whether the calls keep the promise. The search for an order of each part takes at most `budget` steps, and
/// subtracts its steps from `budget`. Attempts that precede this search, with a quarter of the budget, are not counted.
pub(super) fn solve<M: Model>(model: &M, calls: &[Call], terms: Terms, budget: &mut u64) -> Solved {
    if terms.positions
        && let Some(contradiction) = contradiction(calls)
    {
        return Solved::Violated(Cause::Positions(contradiction));
    }
    let mut orders: Vec<(Part, Vec<u32>)> = Vec::new();
    let mut too_hard = false;
    for part in apart(calls) {
        let of_part: Vec<Call> = part.calls.iter().map(|call| calls[*call as usize].clone()).collect();
        match solve_part(model, of_part, &part.calls, terms, budget) {
            Ok(Some(order)) => {
                let order = order.into_iter().map(|call| part.calls[call as usize]).collect();
                orders.push((part, order));
            }
            Ok(None) => too_hard = true,
            Err(cause) => return Solved::Violated(cause),
        }
    }
    if too_hard { Solved::TooHard } else { Solved::Kept(merged(calls, orders)) }
}

/// Returns an order of the calls of a part, or `None` if the search takes too many steps.
fn solve_part<M: Model>(
    model: &M,
    calls: Vec<Call>,
    numbers: &[u32],
    terms: Terms,
    budget: &mut u64,
) -> Result<Option<Vec<u32>>, Cause> {
    let graph = Graph::new(&calls, terms);
    if let Some(cycle) = graph.cycle() {
        return Err(Cause::Cycle(cycle.into_iter().map(|(call, why)| (numbers[call as usize], why)).collect()));
    }
    let ranks = Ranks::new(&calls);
    let positioned = |call: &Call| call.kind.is_multicast() && call.position().is_some();
    let groups: GroupSet = calls.iter().flat_map(|call| call.groups.iter()).collect();
    let several = groups.len() > 1;
    if several && terms.positions && calls.iter().any(positioned) {
        // If the history is correct, this search usually finds an order quickly. It cannot prove a violation, because
        // positions are promised to be consistent only within each group.
        let hinted = graph.clone().with_hint(&calls);
        if hinted.cycle().is_none() {
            let mut part_of_it = *budget / 4;
            if let Found::Order(order) = rows(model, &calls, &hinted, &ranks, &[SHORT_ROW, LONGER_ROW], &mut part_of_it)
            {
                return Ok(Some(order));
            }
        }
    }
    if several {
        for group in groups.iter() {
            let (of_group, of_numbers) = projected(&calls, numbers, group);
            let mut part_of_it = *budget / 4;
            solve_part(model, of_group, &of_numbers, terms, &mut part_of_it)?;
        }
    }
    match rows(model, &calls, &graph, &ranks, &[SHORT_ROW, u32::MAX], budget) {
        Found::Order(order) => Ok(Some(order)),
        Found::Nothing => Err(Cause::Replies { calls, numbers: numbers.to_vec() }),
        Found::NothingSoFar | Found::TooHard => Ok(None),
    }
}

/// Searches repeatedly, with longer rows of commands of unknown outcome each time.
fn rows<M: Model>(model: &M, calls: &[Call], graph: &Graph, ranks: &Ranks, limits: &[u32], budget: &mut u64) -> Found {
    let mut found = Found::NothingSoFar;
    for (left, limit) in (1..=limits.len() as u64).rev().zip(limits) {
        let mut part_of_it = *budget / left;
        let before = part_of_it;
        found = Search::new(model, calls, graph, ranks, *limit).run(&mut part_of_it);
        *budget -= before - part_of_it;
        if matches!(found, Found::Order(_) | Found::Nothing) {
            break;
        }
    }
    found
}

/// Returns the projection of the calls on one group.
fn projected(calls: &[Call], numbers: &[u32], group: Group) -> (Vec<Call>, Vec<u32>) {
    let mut projected = (Vec::new(), Vec::new());
    for (call, number) in calls.iter().zip(numbers).filter(|(call, _)| call.groups.contains(group)) {
        projected.0.push(only(call, group));
        projected.1.push(*number);
    }
    projected
}

/// Returns the projection of a call on one group.
pub(super) fn only(call: &Call, group: Group) -> Call {
    let mut call = call.clone();
    call.groups = [group].into_iter().collect();
    if let Outcome::Answered { replies, .. } = &mut call.outcome {
        replies.retain(|(of, _)| *of == group);
    }
    call
}
