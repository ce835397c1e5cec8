//! States that must be possible. Otherwise a search does not do what it claims.

use stateright::Property;
use stentor_multicast::{GroupId, Replica};

use super::machine::{Budget, Cluster, Machine};
use super::member::{Context, Member};
use crate::scenario::Scenario;

/// A condition that a search with some budget must have seen.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub(super) name: &'static str,
    pub(super) seen: fn(&Context, &Budget, &[&Member]) -> bool,
    in_cluster: fn(&Machine, &Cluster) -> bool,
}

macro_rules! sight {
    ($name:literal, $seen:ident) => {
        Sight {
            name: $name,
            seen: $seen,
            in_cluster: |machine, state| {
                machine.view(state, |members| $seen(&machine.context, &machine.budget, members))
            },
        }
    };
}

fn replicas<'a>(members: &'a [&Member]) -> impl Iterator<Item = (&'a Member, &'a Replica)> {
    members.iter().filter_map(|member| member.replica.as_ref().map(|replica| (*member, replica)))
}

fn last_ballot(context: &Context, budget: &Budget, members: &[&Member]) -> bool {
    let last = context.channels.topology.first_ballot(GroupId(0)).number() + u64::from(budget.campaigns);
    replicas(members).any(|(member, r)| r.ballot().number() == last && context.has_all(member))
}

fn two_leaders(_: &Context, _: &Budget, members: &[&Member]) -> bool {
    let leaders: Vec<&Replica> = replicas(members).map(|(_, r)| r).filter(|r| r.is_leader()).collect();
    let same = |a: &Replica, b: &Replica| a.group() == b.group() && a.ballot() != b.ballot();
    leaders.iter().any(|a| leaders.iter().any(|b| same(a, b)))
}

fn survived(context: &Context, _: &Budget, members: &[&Member]) -> bool {
    let all = replicas(members).all(|(member, _)| context.has_all(member));
    all && replicas(members).count() < members.len()
}

fn rejoined(context: &Context, _: &Budget, members: &[&Member]) -> bool {
    replicas(members).any(|(member, r)| member.restarted && !r.is_joining() && context.has_all(member))
}

fn entry_of_a_later_ballot(context: &Context, budget: &Budget, members: &[&Member]) -> bool {
    replicas(members).any(|(member, r)| {
        let first = context.channels.topology.first_ballot(r.group());
        has_entry(context, member) && (r.ballot() > first || budget.campaigns == 0)
    })
}

fn has_entry(context: &Context, member: &Member) -> bool {
    member.log.iter().any(|(message, _)| usize::from(*message) >= context.bodies.len())
}

/// Returns the conditions that a search with this budget must have seen.
pub(super) fn sights(budget: &Budget, scenario: &Scenario) -> Vec<Sight> {
    let (mut sights, sizes) = (Vec::new(), &scenario.sizes);
    if !scenario.requests.is_empty() {
        sights.push(sight!("a member of a later ballot has delivered an entry", entry_of_a_later_ballot));
    }
    if budget.campaigns > 0 {
        sights
            .push(sight!("somebody delivers everything, with as many changes of the leader as campaigns", last_ballot));
    }
    // In a group of two a majority is both members, and a member that has promised a larger ballot no longer leads.
    if budget.campaigns > 0 && sizes.iter().any(|size| *size > 2) {
        sights.push(sight!("two members of a group lead at once", two_leaders));
    }
    if budget.crashes > 0 && budget.campaigns > 0 {
        sights.push(sight!("a crash, and everybody else delivers everything", survived));
    }
    if budget.restarts > 0 && budget.campaigns > 0 {
        sights.push(sight!("a member without memory is taken in and delivers everything", rejoined));
    }
    sights
}

/// Returns the same conditions as stateright properties.
pub(super) fn possible(budget: &Budget, scenario: &Scenario) -> Vec<Property<Machine>> {
    let sights = sights(budget, scenario).into_iter();
    sights.map(|sight| Property::sometimes(sight.name, sight.in_cluster)).collect()
}
