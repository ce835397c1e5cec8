//! Reads outside the order: at the leader, after a position, at any member.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use stentor::{
    ApplyThread, CallError, Client, Cluster, Consistency, Context, Frozen, Group, NodeHandle, Outcome, Position,
    ReadContext, Refused, Reply, StateMachine,
};
use stentor_testutil::TempDir;

use crate::log::until;

/// Command that makes the machine slow in all following commands.
const SLOW: &[u8] = b"slow";
/// Query whose answer exceeds the longest reply.
const LONG: &[u8] = b"long";

/// A machine that counts commands.
#[derive(Clone, Default)]
struct Count {
    count: u64,
    is_slow: bool,
}

impl StateMachine for Count {
    type Frozen = Count;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        if self.is_slow {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.is_slow |= command == SLOW;
        self.count += 1;
        reply.extend(&self.count.to_le_bytes());
    }

    /// Replies with the count. Checks the query, and the time of the read.
    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        if query == LONG {
            return reply.extend(&[0; 5000]);
        }
        assert_eq!((query, at.time()), (&b"count"[..], at.position().time));
        reply.extend(&self.count.to_le_bytes());
    }

    fn freeze(&self) -> Count {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 9];
        from.read_exact(&mut bytes)?;
        let (count, is_slow) = bytes.split_first_chunk().expect("nine bytes");
        *self = Count { count: u64::from_le_bytes(*count), is_slow: is_slow == [1] };
        Ok(())
    }
}

impl Frozen for Count {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.count.to_le_bytes())?;
        out.write_all(&[self.is_slow.into()])
    }
}

/// A group of three, and a group of one.
struct Running {
    cluster: Cluster,
    nodes: Vec<NodeHandle<Count>>,
    group: Group,
    other: Group,
    on: ApplyThread,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, on: ApplyThread) -> Running {
        let directory = TempDir::new();
        let three = (1..=3).map(|n| (format!("m{n}"), format!("127.0.0.{n}:7101")));
        let silence = Duration::from_millis(200)..=Duration::from_millis(400);
        let builder = Cluster::builder(name).directory(&directory).election(silence).group("g1", three);
        let cluster = builder.group("g2", [("x", "127.0.1.1:7101")]).build().expect("a valid cluster");
        let [group, other] = ["g1", "g2"].map(|name| cluster.group(name).expect("the group is in the configuration"));
        let mut running = Running { cluster, nodes: Vec::new(), group, other, on, _directory: directory };
        running.nodes = ["m1", "m2", "m3", "x"].map(|name| running.start(name)).into();
        running
    }

    fn start(&self, name: &str) -> NodeHandle<Count> {
        self.cluster.node(name, Count::default()).apply_on(self.on).spawn().expect("the node starts")
    }

    fn connect(&self) -> Client {
        self.cluster.client().patience(Duration::from_secs(20)).connect().expect("the client connects")
    }

    /// Applies a command. Returns the count and the position.
    fn add(&self, client: &Client) -> (u64, Position) {
        let answer = client.call(self.group, b"add").wait().expect("the command is applied");
        (number(answer.bytes()), answer.position())
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn count(client: &Client, at: Group, how: Consistency) -> u64 {
    let answer = client.read(at, b"count", how).wait().expect("the read is answered");
    number(answer.bytes())
}

#[test]
fn leader_read_contains_all_answered_commands() {
    for on in [ApplyThread::Own, ApplyThread::Protocol] {
        let running = Running::new(&format!("direct-{on:?}").to_lowercase(), on);
        let (one, two) = (running.connect(), running.connect());
        for n in 1..=200 {
            let (added, place) = running.add(&one);
            let answer = two.read(running.group, b"count", Consistency::Leader).wait().expect("the read is answered");
            assert_eq!((added, number(answer.bytes())), (n, n));
            let position = answer.position();
            assert!(position.time >= place.time && position.index >= place.index, "{position:?} {place:?}");
            assert_eq!((position.applied_in, answer.replies().count()), (running.group, 1));
            assert!(answer.replies().all(|(group, _)| group == running.group));
        }
        let applied = running.nodes[0].status().expect("the node runs").applied;
        count(&two, running.group, Consistency::Leader);
        assert_eq!(
            running.nodes[0].status().expect("the node runs").applied,
            applied,
            "a read has no place in the order"
        );
    }
}

/// Returns the name of the node that leads the first group.
fn leading(running: &Running) -> String {
    let leads = |node: &NodeHandle<Count>| node.status().ok().filter(|status| status.leads).map(|status| status.name);
    until("a leader", || running.nodes[..3].iter().find_map(leads))
}

#[test]
fn a_client_names_the_member_that_answered_last_as_leader() {
    let mut running = Running::new("direct-leader", ApplyThread::Own);
    let (client, reader) = (running.connect(), running.connect());
    let mut local = running.cluster.client().connect_local().expect("it connects");
    assert_eq!([client.leader(running.group), client.leader(running.other)], [None; 2], "nothing was answered");
    running.add(&client);
    assert_eq!((client.leader(running.group), client.leader(running.other)), (Some(&*leading(&running)), None));
    count(&reader, running.group, Consistency::Local);
    assert_eq!(reader.leader(running.group), None, "any member answers a local read");
    count(&reader, running.group, Consistency::Leader);
    assert_eq!(reader.leader(running.group), client.leader(running.group));
    client.call([running.group, running.other], b"both").wait().expect("it is applied");
    assert_eq!(client.leader(running.other), Some("x"));

    let first = leading(&running);
    let at = running.nodes.iter().position(|node| node.status().is_ok_and(|status| status.name == first));
    running.nodes.remove(at.expect("it is one of them")).stop().expect("it hands over");
    count(&reader, running.group, Consistency::Leader);
    running.add(&client);
    let submitted = local.submit(running.group, b"add").expect("there is room");
    until("an outcome", || {
        let mut is_applied = None;
        let _ = local.turn(|ended, outcome| {
            is_applied = (ended == submitted && matches!(outcome, Outcome::Applied(_))).then_some(());
        });
        is_applied
    });
    running.nodes.truncate(2);
    let leads = |node: &NodeHandle<Count>| node.status().ok().filter(|status| status.leads).map(|status| status.name);
    let second = until("a leader", || running.nodes.iter().find_map(leads));
    assert_ne!(second, first);
    for known in [client.leader(running.group), reader.leader(running.group), local.leader(running.group)] {
        assert_eq!(known, Some(&*second));
    }
}

#[test]
fn read_after_a_position_contains_it_and_a_local_read_does_not_wait() {
    let running = Running::new("direct-after", ApplyThread::Own);
    let clients = [0; 3].map(|_| running.connect());
    for n in 1..=60 {
        let (_, place) = running.add(&clients[0]);
        for client in &clients {
            assert!(count(client, running.group, Consistency::After(place)) >= n);
            assert!(count(client, running.group, Consistency::Local) <= n);
        }
    }
    let other =
        clients[0].call([running.group, running.other], b"both").wait().expect("the command is applied").position();
    assert_eq!(other.applied_in, running.group);
    assert_eq!(count(&clients[1], running.other, Consistency::After(other)), 1, "by its time");
}

#[test]
fn refused_reads_name_the_reason() {
    let running = Running::new("direct-refused", ApplyThread::Own);
    let client = running.connect();
    let refused = |call: stentor::Call| match call.wait() {
        Err(CallError::NotApplied(why)) => why,
        other => panic!("{other:?}"),
    };
    let both = [running.group, running.other];
    assert_eq!(refused(client.read(both, b"count", Consistency::Leader)), Refused::OneGroupOnly);
    let longest = client.read(running.group, &vec![0; 1 << 20], Consistency::Local);
    assert!(matches!(refused(longest), Refused::TooLong { bytes: 0x10_0000, .. }));
    let long = client.read(running.group, LONG, Consistency::Leader).wait();
    assert!(matches!(long, Err(CallError::ReplyTooLong(group)) if group == running.group), "{long:?}");
    // No member will apply a command at this position.
    let (_, mut place) = running.add(&client);
    place.index += 1_000_000;
    let late = client.read(running.group, b"count", Consistency::After(place)).wait_for(Duration::from_millis(300));
    assert!(
        matches!(late, Err(CallError::NotApplied(Refused::Unanswered(group))) if group == running.group),
        "{late:?}"
    );
    // The group does not have this history.
    place.incarnation ^= 1 << 40;
    assert_eq!(
        refused(client.read(running.group, b"count", Consistency::After(place))),
        Refused::GroupReset(running.group)
    );
    assert_eq!(count(&client, running.group, Consistency::Leader), 1, "it goes on");
}

/// A slow machine delays reads behind the commands that they must contain.
#[test]
fn read_waits_for_the_commands_before_it() {
    let running = Running::new("direct-slow", ApplyThread::Own);
    let (one, two) = (running.connect(), running.connect());
    one.call(running.group, SLOW).wait().expect("the command is applied");
    let calls: Vec<_> = (0..20).map(|_| one.call(running.group, b"add")).collect();
    let last = calls.into_iter().map(|call| number(call.wait().expect("the command is applied").bytes())).max();
    assert_eq!(last, Some(21));
    assert_eq!(count(&two, running.group, Consistency::Leader), 21);
}

#[test]
fn many_reads_share_their_rounds_of_writes() {
    let running = Running::new("direct-many", ApplyThread::Own);
    let client = running.connect();
    running.add(&client);
    let calls: Vec<_> = (0..400).map(|_| client.read(running.group, b"count", Consistency::Leader)).collect();
    assert!(calls.into_iter().all(|call| number(call.wait().expect("the read is answered").bytes()) == 1));
    let mut local = running.cluster.client().connect_local().expect("the client connects");
    let (mut begun, mut ended) = (0, 0);
    until("all answers", || {
        while begun < 2000 && local.submit_read(running.group, b"count", Consistency::Leader).is_ok() {
            begun += 1;
        }
        let turned = local.turn(|_, outcome| match outcome {
            Outcome::Applied(replies) => {
                assert_eq!((number(replies.bytes()), replies.position().applied_in), (1, running.group));
                ended += 1;
            }
            other => panic!("{other:?}"),
        });
        let _ = turned.expect("the client still runs");
        (ended == 2000).then_some(())
    });
}

/// The leader hands over or stops, and another member answers with all commands that were answered before.
#[test]
fn reads_at_a_new_leader_miss_nothing() {
    let mut running = Running::new("direct-leaders", ApplyThread::Own);
    let (one, two) = (running.connect(), running.connect());
    for round in 0..4_u64 {
        let (added, _) = running.add(&one);
        assert_eq!(count(&two, running.group, Consistency::Leader), added);
        let leader = |running: &Running| {
            let led = |node: &NodeHandle<Count>| node.status().is_ok_and(|status| status.leads);
            (0..3).find(|at| led(&running.nodes[*at]))
        };
        let at = until("a leader", || leader(&running));
        if round % 2 == 0 {
            let to = format!("m{}", (at + 1) % 3 + 1);
            // A member that was started in the previous round becomes eligible once it has joined.
            until("it is asked", || running.nodes[at].hand_over(&to).ok());
        } else {
            let name = format!("m{}", at + 1);
            running.nodes.remove(at).stop().expect("the node ran until it was stopped");
            let again = running.start(&name);
            running.nodes.insert(at, again);
        }
        let since = Instant::now();
        for _ in 0..50 {
            let (added, place) = running.add(&one);
            assert_eq!(count(&two, running.group, Consistency::Leader), added, "round {round}");
            assert!(count(&two, running.group, Consistency::After(place)) >= added);
        }
        assert!(since.elapsed() < Duration::from_secs(10), "round {round}: {:?}", since.elapsed());
    }
}

/// Positions that the session has observed in another group precede its read.
#[test]
fn read_follows_observed_positions_of_other_groups() {
    let running = Running::new("direct-session", ApplyThread::Own);
    let (one, two) = (running.connect(), running.connect());
    for n in 1..=20 {
        let both = one.call([running.group, running.other], b"both").wait().expect("the command is applied");
        two.observe(both.position()).expect("the observed position is not ahead of time");
        assert_eq!(count(&two, running.other, Consistency::Leader), n);
        assert_eq!(count(&two, running.group, Consistency::Leader), n);
    }
}

/// One client always has 30 commands in flight, and the machine is slow.
#[test]
fn reads_are_answered_under_constant_load() {
    let running = Running::new("direct-beside", ApplyThread::Own);
    let (one, two) = (running.connect(), running.connect());
    one.call(running.group, SLOW).wait().expect("the command is applied");
    let until = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut calls = std::collections::VecDeque::new();
            while Instant::now() < until {
                calls.push_back(one.call(running.group, b"add"));
                if calls.len() > 30 {
                    let _ = calls.pop_front().map(stentor::Call::wait);
                }
            }
        });
        let (mut reads, mut last) = (0, 0);
        while Instant::now() < until {
            let now = count(&two, running.group, Consistency::Leader);
            assert!(now >= last);
            (reads, last) = (reads + 1, now);
        }
        assert!(reads > 2, "{reads} reads");
    });
}

/// A member drops reads that wait in vain, and the client repeats them until they time out.
#[test]
fn unanswerable_reads_delay_no_others() {
    let running = Running::new("direct-vain", ApplyThread::Own);
    let (one, two) = (running.connect(), running.connect());
    let (_, mut place) = running.add(&one);
    place.index += 1_000_000;
    let vain: Vec<_> = (0..900).map(|_| one.read(running.group, b"count", Consistency::After(place))).collect();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        assert_eq!(count(&two, running.group, Consistency::Leader), 1);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(vain);
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
}
