//! Reads, and the ends of sessions: a service of locks, each held by a session.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use stentor::{
    ApplyThread, CallError, Client, ClientErrorKind, Cluster, Consistency, Context, Frozen, Groups, NodeHandle,
    Outcome, ReadContext, Refused, Reply, SessionId, StateMachine, Turn, Why,
};
use stentor_testutil::TempDir;

use crate::log::until;

/// Query at which the machine panics.
const PANIC: &[u8] = b"panic";

/// The holders of locks, and the number of commands.
#[derive(Clone, Default)]
struct Locks {
    holders: BTreeMap<Vec<u8>, SessionId>,
    commands: u64,
}

impl StateMachine for Locks {
    type Frozen = Locks;

    /// Acquires the lock with this name, if it is free. Replies whether the session holds it.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.commands += 1;
        let session = at.session().expect("a client with a session");
        let holder = *self.holders.entry(command.to_vec()).or_insert(session);
        reply.extend(&[u8::from(holder == session)]);
    }

    /// Replies whether the lock with this name is held, and with the number of commands.
    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        assert!(query != PANIC, "as requested");
        assert!(at.sender().starts_with('c') && at.time() == at.position().time);
        reply.extend(&[u8::from(self.holders.contains_key(query)), self.commands as u8]);
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        assert_eq!(at.session(), None);
        self.holders.retain(|_, holder| *holder != session);
    }

    fn freeze(&self) -> Locks {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let (mut count, mut entry) = ([0; 8], [0; 17]);
        from.read_exact(&mut count)?;
        *self = Locks { holders: BTreeMap::new(), commands: u64::from_le_bytes(count) };
        while from.read(&mut entry[..1])? > 0 {
            from.read_exact(&mut entry[1..])?;
            let session = entry[1..].try_into().expect("sixteen bytes");
            self.holders.insert(entry[..1].to_vec(), SessionId::from_bytes(session));
        }
        Ok(())
    }
}

impl Frozen for Locks {
    /// Writes the value. The names of locks have one byte.
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.commands.to_le_bytes())?;
        self.holders.iter().try_for_each(|(name, holder)| {
            out.write_all(&name[..1])?;
            out.write_all(&holder.to_bytes())
        })
    }
}

/// Two groups of one member each.
struct Running {
    cluster: Cluster,
    nodes: Vec<NodeHandle<Locks>>,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, on: ApplyThread) -> Running {
        let directory = TempDir::new();
        let builder = Cluster::builder(name).directory(&directory);
        let builder = builder.group("g1", [("a", "127.0.0.1:7101")]).group("g2", [("x", "127.0.1.1:7101")]);
        let cluster = builder.build().expect("a valid cluster");
        let start = |name| cluster.node(name, Locks::default()).apply_on(on).spawn().expect("the node starts");
        let nodes = ["a", "x"].map(start).into();
        Running { cluster, nodes, _directory: directory }
    }

    fn group(&self, name: &str) -> Groups {
        self.cluster.group(name).expect("the group is in the configuration").into()
    }

    fn both(&self) -> Groups {
        Groups::from(&self.cluster.groups().collect::<Vec<_>>()[..])
    }

    fn connect(&self) -> Client {
        self.cluster.client().connect().expect("the client connects")
    }
}

fn read(client: &Client, at: Groups, query: &[u8]) -> (bool, u8) {
    let answer = client.read(at, query, Consistency::Ordered).wait().expect("the read is answered");
    assert!(answer.replies().all(|(_, bytes)| bytes.len() == 2));
    (answer.bytes()[0] == 1, answer.bytes()[1])
}

#[test]
fn a_read_contains_all_answered_commands_and_changes_nothing() {
    for on in [ApplyThread::Own, ApplyThread::Protocol] {
        let running = Running::new(&format!("reads-{on:?}").to_lowercase(), on);
        let (one, two) = (running.connect(), running.connect());
        for n in 1..=20_u8 {
            assert_eq!(read(&two, running.group("g1"), &[n]), (false, n - 1));
            let taken = one.call(running.both(), &[n]).wait().expect("the command is applied");
            assert_eq!(read(&two, running.group("g1"), &[n]), (true, n));
            assert_eq!(read(&two, running.group("g2"), &[n]), (true, n));
            let cut = two.read(running.both(), &[n], Consistency::Ordered).wait().expect("the read is answered");
            assert_eq!(cut.replies().map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>(), [[1, n], [1, n]]);
            assert!(cut.position() > taken.position());
        }
        for node in &running.nodes {
            assert_eq!(node.inspect(|locks| locks.commands).expect("the node runs"), 20);
        }
    }
}

#[test]
fn a_local_client_reads() {
    let running = Running::new("reads-local", ApplyThread::Own);
    let holder = running.connect();
    holder.call(running.group("g1"), b"l").wait().expect("the command is applied");
    let mut client = running.cluster.client().connect_local().expect("the client connects");
    let request = client.submit_read(running.group("g1"), b"l", Consistency::Ordered).expect("there is room");
    let heard = until("an answer", || {
        let mut heard = None;
        let turned = client.turn(|of, outcome| match outcome {
            Outcome::Applied(replies) => heard = Some((of, replies.bytes().to_vec())),
            other => panic!("{other:?}"),
        });
        assert!(!matches!(turned, Ok(Turn::Stopped) | Err(_)));
        heard
    });
    assert_eq!(heard, (request, vec![1, 1]));
}

#[test]
fn locks_are_released_when_their_session_ends_or_expires() {
    let running = Running::new("reads-sessions", ApplyThread::Own);
    let (watcher, ends) = (running.connect(), running.connect());
    ends.call(running.group("g1"), b"e").wait().expect("the command is applied");
    assert!(read(&watcher, running.group("g1"), b"e").0);
    ends.close().expect("its session ends");
    assert!(!read(&watcher, running.group("g1"), b"e").0, "it has ended before this was asked");
    let ttl = Duration::from_secs(4);
    let leaves = running.cluster.client().session_ttl(ttl).connect().expect("the client connects");
    leaves.call(running.group("g1"), b"l").wait().expect("the command is applied");
    assert!(read(&watcher, running.group("g1"), b"l").0);
    leaves.leave().expect("its session lives on");
    assert!(read(&watcher, running.group("g1"), b"l").0);
    until("the end of the session's time", || (!read(&watcher, running.group("g1"), b"l").0).then_some(()));
}

/// The client renews its session, and knows a moment until which the session is certain to live. When the client stops,
/// no other session acquires its lock before that moment.
#[test]
fn a_lock_is_exclusive_while_its_session_surely_lives() {
    let running = Running::new("reads-lease", ApplyThread::Own);
    let watcher = running.connect();
    let ttl = Duration::from_secs(4);
    let mut holder = running.cluster.client().session_ttl(ttl).connect_local().expect("the client connects");
    let own = holder.session().id();
    holder.submit(running.group("g1"), b"l").expect("there is room");
    let mut turn = || {
        let _ = holder.turn(|_, _| ()).expect("the client still runs");
        holder.lives_until()
    };
    let since = Instant::now();
    let first = until("a moment", &mut turn);
    assert!(first > since && first < since + ttl, "less than its time to live, for what clocks may differ");
    let second = until("a renewal", || turn().filter(|moment| *moment > first));
    let has_it = running.nodes[0].inspect(|locks| locks.holders.get(&b"l"[..]).copied());
    assert_eq!(has_it.expect("the node runs"), Some(own));
    until("the end of the session's time", || (!read(&watcher, running.group("g1"), b"l").0).then_some(()));
    assert!(Instant::now() >= second, "it ended {:?} before", second - Instant::now());
    // The client learns of the loss when it continues.
    until("the loss", || turn().is_none().then_some(()));
    assert!(watcher.lives_until().is_some_and(|moment| moment > Instant::now()), "it goes on by itself");
}

#[test]
fn a_restored_member_sees_the_ends_of_restored_sessions() {
    let directory = TempDir::new();
    let members = ["a", "b", "c"].iter().zip(1..).map(|(name, n)| (*name, format!("127.0.0.{n}:7101")));
    let cluster = Cluster::builder("reads-state").directory(&directory).group("g1", members).build();
    let cluster = cluster.expect("a valid cluster");
    let start = |name| cluster.node(name, Locks::default()).spawn().expect("the node starts");
    let [a, b, c] = ["a", "b", "c"].map(start);
    let connect = || cluster.client().connect().expect("the client connects");
    let (ends, stays, group) = (connect(), connect(), cluster.group("g1").expect("the group is in the configuration"));
    for (client, lock) in [(&ends, b"e"), (&stays, b"s")] {
        client.call(group, lock).wait().expect("the command is applied");
    }
    c.stop().expect("the node ran until it was stopped");
    stays.call(group, b"t").wait().expect("the command is applied");
    let c = start("c");
    let held = |node: &NodeHandle<Locks>| node.inspect(|locks| locks.holders.keys().cloned().collect::<Vec<_>>());
    until("the state at the new process", || (held(&c).expect("the node runs") == [b"e", b"s", b"t"]).then_some(()));
    ends.close().expect("its session ends");
    for node in [&a, &b, &c] {
        until("the end at every member", || (held(node).expect("the node runs") == [b"s", b"t"]).then_some(()));
    }
}

#[test]
fn a_query_at_which_a_majority_panics_halts_the_group() {
    let running = Running::new("reads-panic", ApplyThread::Own);
    let client = running.connect();
    let asked = client.read(running.group("g1"), PANIC, Consistency::Ordered).wait();
    assert!(matches!(asked, Err(CallError::Unknown(_, Why::Halted(_)))), "{asked:?}");
    let asked = client.read(running.group("g1"), b"l", Consistency::Ordered).wait();
    assert!(matches!(asked, Err(CallError::NotApplied(Refused::Halted(_)))), "{asked:?}");
    assert_eq!(read(&client, running.group("g2"), b"l"), (false, 0));
}

/// The process that held the session before gets an error from its next call, and ends.
#[test]
fn client_of_a_resumed_session_gets_an_error_and_ends() {
    let running = Running::new("reads-taken-up", ApplyThread::Own);
    let first = running.connect();
    first.call(running.group("g1"), b"l").wait().expect("the command is applied");
    let second = running.cluster.client().session(first.session()).connect().expect("the client resumes the session");
    let told = first.call(running.group("g1"), b"m").wait().expect_err("another process has the session");
    assert!(matches!(told, CallError::NotApplied(Refused::Superseded)), "{told:?}");
    let failure = until("its end", || first.failure());
    assert_eq!(failure.kind(), ClientErrorKind::Superseded);
    assert!(failure.to_string().contains("another process has resumed the session"), "{failure}");
    let told = first.call(running.group("g1"), b"m").wait().expect_err("the client has ended");
    assert!(matches!(told, CallError::NotApplied(Refused::ClientEnded)), "{told:?}");
    assert_eq!(first.lives_until(), None);
    let held =
        running.nodes[0].inspect(|locks| locks.holders.keys().cloned().collect::<Vec<_>>()).expect("the node runs");
    assert_eq!(held, [b"l"], "what was refused is not applied");
    second.call(running.group("g1"), b"n").wait().expect("the second client has the session");
}

/// Each client tries the ids of the clients before it, and waits for none of them.
#[test]
fn clients_skip_used_ids_without_waiting() {
    let running = Running::new("reads-many", ApplyThread::Own);
    let clients: Vec<Client> = (0..8).map(|_| running.connect()).collect();
    let since = Instant::now();
    let last = running.connect();
    assert!(since.elapsed() < Duration::from_millis(1500), "{:?} behind eight others", since.elapsed());
    last.call(running.group("g1"), b"l").wait().expect("the command is applied");
    drop(clients);
}
