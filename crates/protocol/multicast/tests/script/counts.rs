//! Tests the protocol's formulas for the exact number of remote writes that one message costs each role in an idle
//! cluster.

use std::collections::VecDeque;

use stentor_fabric::ProcessId;
use stentor_multicast::{ProcessRole, Variant};

use super::process::{Done, Effect, Process};

/// A cluster of complete processes, with one message in flight.
struct Cluster {
    members: Vec<Process>,
    /// Receiver, sender and effect.
    queue: VecDeque<(u16, u16, Effect)>,
    /// Number of writes of each process to other processes, indexed by process.
    writes: Vec<usize>,
    delivered: usize,
}

impl Cluster {
    fn new(sizes: &[usize], variant: Variant) -> Self {
        let members = sizes.iter().sum::<usize>() as u16;
        let members: Vec<Process> = (0..members).map(|me| Process::new(sizes, me, variant)).collect();
        Cluster { writes: vec![0; members.len()], members, queue: VecDeque::new(), delivered: 0 }
    }

    fn group_of(&self, process: u16) -> u16 {
        match self.members[0].topology.role(ProcessId(process)) {
            Some(ProcessRole::Member { group, .. }) => group.0,
            _ => panic!("{process} is not a member"),
        }
    }

    fn post(&mut self, from: u16, done: Done) {
        for effect in done.expect("nothing is refused in a run without failures") {
            let receivers: Vec<u16> = match &effect {
                Effect::Timestamp { to, .. } | Effect::Ack { to, .. } => vec![*to],
                Effect::Deliver(_) => {
                    self.delivered += 1;
                    Vec::new()
                }
                _ => {
                    let group = self.group_of(from);
                    (0..self.members.len() as u16).filter(|to| *to != from && self.group_of(*to) == group).collect()
                }
            };
            self.writes[usize::from(from)] += receivers.len();
            self.queue.extend(receivers.into_iter().map(|to| (to, from, effect.clone())));
        }
    }

    fn take(&mut self, to: u16, from: u16, effect: Effect) {
        let member = &mut self.members[usize::from(to)];
        let done = match effect {
            Effect::Assign { head, counter, position, ballot, time } => {
                member.assign(head, counter, position, ballot, time)
            }
            Effect::Vector { head, counter, times } => member.vector(head, counter, &times),
            Effect::Remote { head, counter, position, ballot, time } => {
                member.remote(head, counter, position, ballot, time)
            }
            Effect::Timestamp { item, .. } => member.timestamp(from, item.head, item.position, item.ballot, item.time),
            Effect::Ack { head, position, ballot, times, .. } => member.ack_in(ballot, from, head, position, &times),
            other => panic!("{other:?} is not sent when nothing fails"),
        };
        self.post(to, done);
    }
}

/// Multicasts one message to all groups. Returns the writes of every member.
fn writes(sizes: &[usize], variant: Variant) -> Vec<usize> {
    let mut cluster = Cluster::new(sizes, variant);
    let to: Vec<(u16, u64)> = (0..sizes.len() as u16).map(|group| (group, 0)).collect();
    // The bodies reach the followers first, so that no stream has to wait.
    let followers_first = (0..cluster.members.len() as u16).rev();
    for member in followers_first {
        let done = cluster.members[usize::from(member)].message(0, 1, &to);
        cluster.post(member, done);
    }
    while let Some((to, from, effect)) = cluster.queue.pop_front() {
        cluster.take(to, from, effect);
    }
    assert_eq!(cluster.delivered, cluster.members.len(), "{sizes:?} {variant:?}: delivered everywhere");
    cluster.writes
}

/// Returns the writes of a leader and of a follower, with `all` destination processes in `g` groups. Their own group
/// has `p` of these processes.
fn formula(variant: Variant, g: usize, p: usize, all: usize) -> (usize, usize) {
    let leader = match variant {
        Variant::V1 => (g - 1) + (p - 1) + (p - 1) * (g - 1) + all - 1,
        Variant::V2 => (g - 1) + (p - 1) + if g > 1 { p - 1 } else { 0 } + if p == 1 { all - 1 } else { 0 },
    };
    (leader, all - 1)
}

#[test]
fn writes_by_role_are_those_of_the_formulas() {
    for variant in [Variant::V1, Variant::V2] {
        for (g, p) in [1, 2, 3, 5].into_iter().flat_map(|g| [1, 3, 5].map(|p| (g, p))) {
            let (leader, follower) = formula(variant, g, p, g * p);
            let expected: Vec<usize> =
                (0..g * p).map(|member| if member % p == 0 { leader } else { follower }).collect();
            assert_eq!(writes(&vec![p; g], variant), expected, "{variant:?} g={g} p={p}");
        }
    }
}

#[test]
fn known_totals_of_the_formulas() {
    let total = |sizes: &[usize], variant| sizes.iter().sum::<usize>() + writes(sizes, variant).iter().sum::<usize>();
    assert_eq!(total(&[3, 3], Variant::V1), 46);
    assert_eq!(total(&[3, 3], Variant::V2), 36);
    // Groups of different sizes: the leaders write 4 and 5, the followers 3 each, and all processes 19, including the
    // client.
    assert_eq!(writes(&[1, 3], Variant::V2), [4, 5, 3, 3]);
    assert_eq!(total(&[1, 3], Variant::V2), 19);
}
