//! What must be possible, else a search is not what it claims to be.

use stateright::Property;
use stentor_multicast::Replica;

use super::machine::{Budget, Cluster, Machine};
use super::member::Member;

const LAST_BALLOT: &str = "somebody delivers everything, with as many changes of the leader as campaigns";
const TWO_LEADERS: &str = "two members of a group lead at once";
const SURVIVED: &str = "a crash, and everybody else delivers everything";
const REJOINED: &str = "a member without memory is taken in and delivers everything";

fn replicas<'a>(members: &'a [&Member]) -> impl Iterator<Item = (&'a Member, &'a Replica)> {
    members.iter().filter_map(|member| member.replica.as_ref().map(|replica| (*member, replica)))
}

/// What a search with this budget must have seen.
pub(super) fn possible(budget: &Budget, sizes: &[usize]) -> Vec<Property<Machine>> {
    let mut possible = Vec::new();
    if budget.campaigns > 0 {
        possible.push(Property::sometimes(LAST_BALLOT, |machine: &Machine, state: &Cluster| {
            machine.view(state, |members| {
                let last = machine.last_ballot();
                replicas(members).any(|(member, r)| r.ballot().number() == last && machine.has_all(member))
            })
        }));
    }
    // A majority of two is both of them: who has promised a larger ballot leads no more.
    if budget.campaigns > 0 && sizes.iter().any(|size| *size > 2) {
        possible.push(Property::sometimes(TWO_LEADERS, |machine: &Machine, state: &Cluster| {
            machine.view(state, |members| {
                let leaders: Vec<&Replica> = replicas(members).map(|(_, r)| r).filter(|r| r.is_leader()).collect();
                let same = |a: &Replica, b: &Replica| a.group() == b.group() && a.ballot() != b.ballot();
                leaders.iter().any(|a| leaders.iter().any(|b| same(a, b)))
            })
        }));
    }
    if budget.crashes > 0 && budget.campaigns > 0 {
        possible.push(Property::sometimes(SURVIVED, |machine: &Machine, state: &Cluster| {
            machine.view(state, |members| {
                let all = replicas(members).all(|(member, _)| machine.has_all(member));
                all && replicas(members).count() < members.len()
            })
        }));
    }
    if budget.restarts > 0 && budget.campaigns > 0 {
        possible.push(Property::sometimes(REJOINED, |machine: &Machine, state: &Cluster| {
            machine.view(state, |members| {
                replicas(members).any(|(member, r)| member.restarted && !r.is_joining() && machine.has_all(member))
            })
        }));
    }
    possible
}
