//! Programs of several versions in one group, and machines that differ.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stentor::{
    ApplyThread, Client, Cluster, Context, Frozen, Group, NodeError, NodeErrorKind, NodeHandle, Reply, StateMachine,
    Status,
};
use stentor_testutil::TempDir;

use crate::until::until;

/// A machine that adds each number times the version in force, and replies with the sum and the version. Its program
/// has version `V`.
#[derive(Clone, Default)]
struct Sum<const V: u32> {
    sum: u64,
    /// Versions in which commands were applied.
    seen: Vec<u32>,
    /// Amount that is added to the next sum at this member only.
    wrong: Arc<AtomicU64>,
    /// `true` if the wrong amount changes only the digest, and no reply.
    hides: bool,
    hidden: u64,
}

impl<const V: u32> StateMachine for Sum<V> {
    const VERSION: u32 = V;
    type Frozen = Sum<V>;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        assert!(at.version() <= V, "the version in force is known");
        let number = u64::from_le_bytes(command.try_into().expect("eight bytes"));
        let wrong = self.wrong.swap(0, Ordering::Relaxed);
        *if self.hides { &mut self.hidden } else { &mut self.sum } += wrong;
        self.sum += number * u64::from(at.version());
        self.seen.push(at.version());
        reply.extend(&self.sum.to_le_bytes());
        reply.extend(&at.version().to_le_bytes());
    }

    fn digest(&self) -> Option<u64> {
        Some(self.sum ^ self.hidden << 32)
    }

    fn freeze(&self) -> Sum<V> {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut word = [0; 8];
        from.read_exact(&mut word)?;
        self.sum = u64::from_le_bytes(word);
        self.hidden = 0;
        Ok(())
    }
}

impl<const V: u32> Frozen for Sum<V> {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.sum.to_le_bytes())
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A group of three on shared memory, whose members may run different programs.
struct Running {
    cluster: Cluster,
    group: Group,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str) -> Self {
        let directory = TempDir::new();
        let members = NAMES.map(|name| (name, format!("{name}:1")));
        let cluster = Cluster::builder(name)
            .group("g", members)
            .directory(&*directory)
            .build()
            .expect("the configuration is valid");
        let group = cluster.group("g").expect("the group is in the configuration");
        Running { cluster, group, _directory: directory }
    }

    fn start<const V: u32>(&self, name: &str, machine: Sum<V>, on: ApplyThread) -> NodeHandle<Sum<V>> {
        self.cluster.node(name, machine).apply_on(on).spawn().expect("the node starts")
    }

    fn client(&self) -> Client {
        self.cluster.client().connect().expect("the group is there")
    }

    /// Adds a number. Returns the sum and the version that the group replies.
    fn add(&self, client: &Client, number: u64) -> (u64, u32) {
        let answer = client.call(self.group, &number.to_le_bytes()).wait().expect("the command is applied");
        let (sum, version) = answer.bytes().split_at(8);
        (
            u64::from_le_bytes(sum.try_into().expect("the slice has this length")),
            u32::from_le_bytes(version.try_into().expect("the slice has this length")),
        )
    }
}

fn status<S: StateMachine>(node: &NodeHandle<S>) -> Status {
    node.status().expect("the node runs")
}

/// Waits until the version is in force at a node.
fn in_force<S: StateMachine>(node: &NodeHandle<S>, version: u32) {
    until("the version", || (status(node).version == version).then_some(()));
}

#[test]
fn a_group_starts_with_the_version_of_all_its_programs() {
    for (name, on) in [("versions-own", ApplyThread::Own), ("versions-here", ApplyThread::Protocol)] {
        let running = Running::new(name);
        let nodes = NAMES.map(|name| running.start(name, Sum::<3>::default(), on));
        let client = running.client();
        assert_eq!(running.add(&client, 5), (15, 3), "from the first command on");
        for node in &nodes {
            in_force(node, 3);
            let others = status(node).others;
            assert!(others.iter().all(|other| other.version == Some(3) && other.differs_at.is_none()), "{others:?}");
        }
        for node in nodes {
            assert!(node.stop().expect("the node ran until it was stopped").seen.iter().all(|version| *version == 3));
        }
    }
}

#[test]
fn a_new_version_takes_effect_with_the_last_program_and_never_decreases() {
    let running = Running::new("versions-rolling");
    let old = NAMES.map(|name| running.start(name, Sum::<1>::default(), ApplyThread::Own));
    let client = running.client();
    assert_eq!(running.add(&client, 1), (1, 1));
    // The members get the new program one after the other.
    let mut new = Vec::new();
    for (index, (name, node)) in NAMES.into_iter().zip(old).enumerate() {
        node.stop().expect("the node ran until it was stopped");
        new.push(running.start(name, Sum::<2>::default(), ApplyThread::Own));
        until("it has joined", || (!status(&new[index]).joining).then_some(()));
        if index < 2 {
            assert_eq!(running.add(&client, 1).1, 1, "an old one is there");
        }
    }
    new.iter().for_each(|node| in_force(node, 2));
    assert_eq!(running.add(&client, 10), (23, 2));
    // A member with the old program does not understand the state.
    new.pop().expect("three nodes run").stop().expect("the node ran until it was stopped");
    let old = running.start(NAMES[2], Sum::<1>::default(), ApplyThread::Own);
    until("it ends", || old.has_ended().then_some(()));
    let error: NodeError = old.stop().err().expect("the node has ended by itself");
    assert_eq!(error.kind(), NodeErrorKind::Restore);
    let said = error.to_string();
    assert!(said.contains("applies version 2 of the state machine, and this program has version 1"), "{said}");
    assert_eq!(running.add(&client, 1), (25, 2), "the others go on");
    let again = running.start(NAMES[2], Sum::<2>::default(), ApplyThread::Own);
    in_force(&again, 2);
}

/// One of three members computes a wrong sum once. The others report it, and it restores their state.
fn one_that_differs_is_named_and_gets_the_state_of_the_others(name: &str, hides: bool, leads: bool, on: ApplyThread) {
    let running = Running::new(name);
    let wrongs: Vec<Arc<AtomicU64>> = NAMES.iter().map(|_| Arc::default()).collect();
    let machine = |index: usize| Sum::<1> { wrong: Arc::clone(&wrongs[index]), hides, ..Sum::default() };
    let nodes: Vec<_> = NAMES.iter().enumerate().map(|(index, name)| running.start(name, machine(index), on)).collect();
    let client = running.client();
    for number in 0..20 {
        running.add(&client, number);
    }
    let leader = || until("a leader", || nodes.iter().position(|node| status(node).leads));
    let wrong = (0..3).find(|index| (*index == leader()) == leads).expect("the group has such a member");
    let right = (0..3).find(|index| *index != wrong).expect("the group has such a member");
    wrongs[wrong].store(1000, Ordering::Relaxed);
    running.add(&client, 0);
    until("it is named", || {
        let status = status(&nodes[right]);
        status.others.iter().any(|other| other.name == NAMES[wrong] && other.differs_at.is_some()).then_some(())
    });
    until("it has the state of the others", || {
        running.add(&client, 0);
        let sums = nodes.iter().map(|node| node.inspect(|machine| (machine.sum, machine.hidden)));
        sums.map(|sum| sum.ok()).all(|sum| sum == Some((190, 0))).then_some(())
    });
    until("nobody differs any more", || {
        running.add(&client, 0);
        let differs = |node| status(node).others.iter().any(|other| other.differs_at.is_some());
        (!nodes.iter().any(differs)).then_some(())
    });
}

#[test]
fn a_differing_follower_is_reported_and_restored() {
    one_that_differs_is_named_and_gets_the_state_of_the_others("differs", false, false, ApplyThread::Own);
    one_that_differs_is_named_and_gets_the_state_of_the_others("differs-here", false, false, ApplyThread::Protocol);
}

#[test]
fn a_differing_leader_hands_over() {
    one_that_differs_is_named_and_gets_the_state_of_the_others("differs-leads", false, true, ApplyThread::Own);
}

#[test]
fn a_hidden_difference_is_found_by_the_digest() {
    one_that_differs_is_named_and_gets_the_state_of_the_others("differs-digest", true, false, ApplyThread::Own);
}
