//! A partial-order reduction: bodies are taken late.
//!
//! Taking a body is a step of one member. If it sends nothing and delivers nothing, it commutes with every step of all
//! other members: it reads only a ring that a client wrote before the run. So in any run it can be postponed until the
//! next step of the same member. It can be postponed further, past every step with which it commutes there: where the
//! real state machine, run in both orders, ends in the same state and sends the same messages. The postponement stops
//! before a step with which it does not commute (an entry that waits for the body, a state that names it …), or at the
//! end of the run. The deliveries of all members and their order are the same in the original run and in the run with
//! late bodies, and a violation, once there, stays. So it is enough to search runs in which a body is taken only right
//! before a step of the same member with which it does not commute, or when it has an effect of its own.
//!
//! A crash of the member empties its rings, whether they were read or not. This reduction covers neither restarts, lost
//! connections and ticks nor several messages of one client: with any of these, bodies are taken at any time.

use super::member::Context;
use super::store::{Cause, Store};

/// Returns the steps of one member: what it takes, and after which bodies.
pub(crate) fn lazy(
    context: &Context,
    store: &mut Store,
    member: u32,
    bodies: &[(u16, Cause)],
    heads: &[Cause],
) -> Vec<(Cause, u8)> {
    let mut with = vec![Some(member)];
    for set in 1..1_usize << bodies.len() {
        with.push(after_all(context, store, &with, set, bodies));
    }
    let mut steps = Vec::new();
    for (set, state) in with.iter().enumerate() {
        let Some(state) = *state else { continue };
        let effective = (0..bodies.len()).filter(|at| set >> at & 1 == 0).map(|at| bodies[at].1);
        let effective: Vec<Cause> = effective.filter(|body| silent(context, store, state, *body).is_none()).collect();
        for cause in heads.iter().copied().chain(effective) {
            if store.outcome(context, state, cause).is_none() {
                continue;
            }
            let mut taken = (0..bodies.len()).filter(|at| set >> at & 1 == 1);
            let needed = taken.all(|at| {
                let without = with[set & !(1 << at)].expect("a part of a set that can be taken");
                !commute(context, store, without, bodies[at].1, cause)
            });
            if needed {
                let clients = (0..bodies.len()).filter(|at| set >> at & 1 == 1).map(|at| 1 << bodies[at].0).sum();
                steps.push((cause, clients));
            }
        }
    }
    steps
}

/// Returns the state after a set of bodies was taken in any order, if none of them has an effect.
fn after_all(
    context: &Context,
    store: &mut Store,
    with: &[Option<u32>],
    set: usize,
    bodies: &[(u16, Cause)],
) -> Option<u32> {
    let mut state = None;
    for at in (0..bodies.len()).filter(|at| set >> at & 1 == 1) {
        let next = silent(context, store, with[set & !(1 << at)]?, bodies[at].1)?;
        assert_eq!(*state.get_or_insert(next), next, "bodies without effect commute");
    }
    state
}

/// Returns the state after a step that sends and delivers nothing.
fn silent(context: &Context, store: &mut Store, member: u32, cause: Cause) -> Option<u32> {
    store.outcome(context, member, cause).filter(|o| o.sends.is_empty() && !o.judge).map(|o| o.next)
}

/// Returns whether a body can just as well be taken after a step that is possible without it.
fn commute(context: &Context, store: &mut Store, member: u32, body: Cause, step: Cause) -> bool {
    let Some(first) = silent(context, store, member, body) else { return false };
    let Some(other) = store.outcome(context, first, step) else { return false };
    let (end, sends, judge) = (other.next, other.sends.clone(), other.judge);
    let Some(outcome) = store.outcome(context, member, step) else { return false };
    let next = outcome.next;
    outcome.sends == sends && outcome.judge == judge && silent(context, store, next, body) == Some(end)
}
