//! Decides whether there is an order, part by part.

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

/// Commands of unknown outcome that may stand in a row at first.
const SHORT_ROW: u32 = 1;
/// The same along the positions, where little else is left to choose.
const LONGER_ROW: u32 = 3;

/// What was decided.
#[derive(Debug)]
pub(super) enum Solved {
    Kept(Vec<usize>),
    Violated(Cause),
    TooHard,
}

/// Why there is no order.
#[derive(Debug)]
pub(super) enum Cause {
    /// Positions contradict.
    Positions(Contradiction),
    /// Each of these calls must come before the next, and the last before the first.
    Cycle(Vec<(u32, Why)>),
    /// Every order of these calls contradicts a reply. They are those of one part, or what is of one group in them.
    Replies {
        calls: Vec<Call>,
        /// Their numbers.
        numbers: Vec<u32>,
    },
}

/// Decides in at most so many steps, which are taken off.
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

/// The order of a part; `None` if it is too hard to find.
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
        // Where nothing is wrong this finds the order at once. Positions are promised to fit within each group alone, so it decides
        // nothing otherwise.
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

/// Searches with longer and longer rows of commands of unknown outcome.
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

/// What of these calls is of one group.
fn projected(calls: &[Call], numbers: &[u32], group: Group) -> (Vec<Call>, Vec<u32>) {
    let mut projected = (Vec::new(), Vec::new());
    for (call, number) in calls.iter().zip(numbers).filter(|(call, _)| call.groups.contains(group)) {
        projected.0.push(only(call, group));
        projected.1.push(*number);
    }
    projected
}

/// A call as one group sees it.
pub(super) fn only(call: &Call, group: Group) -> Call {
    let mut call = call.clone();
    call.groups = [group].into_iter().collect();
    if let Outcome::Answered { replies, .. } = &mut call.outcome {
        replies.retain(|(of, _)| *of == group);
    }
    call
}
