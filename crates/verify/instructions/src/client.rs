//! The hot path of a command to a group of three nodes. A client has one command outstanding at a time. Four clients
//! are measured: the protocol's client without a reply, the protocol's client with a hand-written session, a
//! [`LocalClient`], and the caller of a [`Client`].

use std::future::Future as _;
use std::io::{self, Read};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Tasks, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime};

use stentor::runtime::{self, ClientId, ClusterRuntime, GroupId, Housekeeper, ShmFabric, Wants, client_round};
use stentor::{
    ApplyThread, Client, Cluster, ClusterConfig, Context, Group, LocalClient, Node, NodeHandle, Outcome, Reply,
    StateMachine, Stateless, WaitMode,
};
use stentor_fabric::Backoff;
use stentor_session::{Caller, CallerConfig, Envelope, Event, Fate, Pair, ReplyRecord, SessionId};
use stentor_testutil::TempDir;

use crate::{WARM_UP, counted_section};

const CONFIG: &str = r#"
cluster = "instructions"
fabric = "shm"
[election]
kind = "heartbeat"
timeout_min_ms = 4000
timeout_max_ms = 8000
[limits]
window = 64
[[group]]
id = "g1"
process = [ { id = "a", address = "127.0.0.1:7101" }, { id = "b", address = "127.0.0.1:7102" },
            { id = "c", address = "127.0.0.1:7103" } ]
"#;
const NAMES: [&str; 3] = ["a", "b", "c"];
const GROUPS: [GroupId; 1] = [GroupId(0)];
const COMMAND: [u8; 64] = [7; 64];
const COMMAND_WANTS: Wants = Wants { notify: true, sync: false, enveloped: true, not_before: 0 };
/// Maximum number of rounds until a command is answered. About four are needed.
const MOST_ROUNDS: u32 = 100;

/// A state machine that replies with the number of commands.
#[derive(Default)]
struct Counter(u64);

impl StateMachine for Counter {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], reply: &mut Reply) {
        self.0 += 1;
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

fn cluster(directory: &Path) -> Cluster {
    let path = directory.join("cluster.toml");
    std::fs::write(&path, CONFIG).expect("the directory is there");
    Cluster::load(&path).expect("the configuration is valid").in_directory(directory)
}

/// A client that is driven by the benchmark, one command at a time.
pub trait Turns {
    /// Sends the command.
    fn begin(&mut self, group: Group);
    /// Runs a round. Returns whether the command has its outcome.
    fn turn(&mut self) -> bool;
}

impl Turns for LocalClient {
    fn begin(&mut self, group: Group) {
        self.submit(group, &COMMAND).expect("there is room");
    }

    fn turn(&mut self) -> bool {
        let mut done = false;
        let each = |_, outcome: Outcome<'_>| done = matches!(outcome, Outcome::Applied(_));
        let _ = LocalClient::turn(self, each).expect("the client still runs");
        done
    }
}

impl Turns for runtime::Client<ShmFabric> {
    fn begin(&mut self, _: Group) {
        self.submit(&GROUPS, &COMMAND, true).expect("there is room");
    }

    fn turn(&mut self) -> bool {
        self.step();
        self.outstanding() == 0
    }
}

/// The protocol's client with a hand-written session, driven by [`client_round`]. It does only what a command needs,
/// and is the baseline for [`LocalClient`].
pub struct ByHand {
    client: runtime::Client<ShmFabric>,
    backoff: Backoff,
    housekeeper: Housekeeper,
    caller: Caller,
    envelope: [u8; Envelope::BYTES],
    /// The largest logical time in any reply. The next command asks for a later one, as a [`LocalClient`] does.
    heard: u64,
}

impl ByHand {
    /// Runs a round. Returns whether the last command was applied, or `None` if it is not answered yet.
    fn round(&mut self) -> Option<bool> {
        let ByHand { client, backoff, housekeeper, .. } = self;
        client_round(client, backoff, housekeeper, false).expect("the client never sleeps");
        let mut answered = None;
        while let Some(reply) = self.client.next_reply() {
            let record = ReplyRecord::parse(reply.bytes).expect("a record");
            self.heard = self.heard.max(record.applied);
            match self.caller.on_reply(reply.group, &record) {
                Some(Event::Finished(finished)) => answered = Some(matches!(finished.fate, Fate::Applied(_))),
                Some(Event::Answered { refused, .. }) => answered = Some(refused.is_none()),
                _ => {}
            }
        }
        answered
    }

    fn open(mut client: runtime::Client<ShmFabric>) -> Self {
        let pairs = [Pair { group: GROUPS[0], incarnation: client.incarnation(GROUPS[0]) }];
        let mut caller = Caller::new(SessionId(7), CallerConfig { window: 64, ..CallerConfig::default() });
        let until = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970") + Duration::from_secs(30);
        caller.open(7, &pairs, until.as_nanos() as u64).expect("nothing is under way");
        let message = caller.message().expect("its opening");
        client.submit_parts(message.to, &[message.payload], COMMAND_WANTS).expect("there is room");
        let (backoff, housekeeper) = (Backoff::new(WaitMode::POLL), Housekeeper::default());
        let mut by_hand = ByHand { client, backoff, housekeeper, caller, envelope: [0; Envelope::BYTES], heard: 0 };
        let opened = std::iter::repeat_with(|| by_hand.round()).find_map(|answered| answered);
        assert_eq!(opened, Some(true), "the session is opened");
        by_hand
    }
}

impl Turns for ByHand {
    fn begin(&mut self, _: Group) {
        let request = self.caller.begin(&GROUPS).expect("there is room");
        assert!(self.caller.envelope(request, &mut self.envelope), "it is open");
        let parts = [&self.envelope[..], &COMMAND];
        let wants = Wants { not_before: self.heard, ..COMMAND_WANTS };
        self.client.submit_parts(&GROUPS, &parts, wants).expect("there is room");
    }

    fn turn(&mut self) -> bool {
        self.round().inspect(|applied| assert!(applied, "it is not applied")).is_some()
    }
}

/// Three nodes, which apply on their protocol threads, and a client, all in one thread.
pub struct Turned<C> {
    nodes: Vec<Node<Counter>>,
    client: C,
    group: Group,
    _directory: TempDir,
}

impl Turned<LocalClient> {
    /// Connects a client that waits for replies, and sends the warm-up commands.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn local() -> Self {
        let connect = |cluster: &Cluster, _: &Path| {
            cluster.client().wait(WaitMode::POLL).connect_local().expect("the client connects")
        };
        Turned::ready(connect)
    }
}

impl Turned<runtime::Client<ShmFabric>> {
    /// Connects the protocol's client without a session, so that the nodes send it no replies, and sends the warm-up
    /// commands.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn protocol() -> Self {
        Turned::ready(|_, directory| protocol(directory))
    }
}

impl Turned<ByHand> {
    /// Connects the protocol's client, opens a session by hand, and sends the warm-up commands.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn by_hand() -> Self {
        Turned::ready(|_, directory| ByHand::open(protocol(directory)))
    }
}

fn protocol(directory: &Path) -> runtime::Client<ShmFabric> {
    let config = ClusterConfig::parse(Path::new("cluster.toml"), CONFIG).expect("the configuration is valid");
    let plan = ClusterRuntime::new(config).expect("the configuration is possible");
    let mut client = plan.client(ClientId(0), directory.to_owned()).expect("the client starts");
    while !client.reaches_all(&GROUPS) {
        client.housekeep();
        client.step();
    }
    client
}

impl<C: Turns + Send> Turned<C> {
    fn ready(connect: impl FnOnce(&Cluster, &Path) -> C + Send) -> Self {
        let directory = TempDir::new();
        let cluster = cluster(&directory);
        let start = |name| {
            let node = cluster.node(name, Counter::default()).apply_on(ApplyThread::Protocol);
            node.wait(WaitMode::POLL).start().expect("the node starts")
        };
        let mut nodes: Vec<_> = NAMES.into_iter().map(start).collect();
        let client = thread::scope(|scope| {
            let connecting = scope.spawn(|| connect(&cluster, &directory));
            while !connecting.is_finished() {
                turn(&mut nodes);
            }
            connecting.join().expect("the client connects")
        });
        let group = cluster.group("g1").expect("the group is in the configuration");
        let mut turned = Turned { nodes, client, group, _directory: directory };
        for _ in 0..WARM_UP {
            turned.command(false);
        }
        turned
    }

    /// Sends `commands`, one after the other, and counts the instructions of the client.
    ///
    /// # Panics
    /// Panics if a command is not answered.
    pub fn run(&mut self, commands: u64) {
        for _ in 0..commands {
            self.command(true);
        }
    }

    fn command(&mut self, counted: bool) {
        let (client, group) = (&mut self.client, self.group);
        crate::counted_if(counted, || client.begin(group));
        let mut rounds = 0;
        loop {
            turn(&mut self.nodes);
            let client = &mut self.client;
            if crate::counted_if(counted, || client.turn()) {
                return;
            }
            rounds += 1;
            assert!(rounds < MOST_ROUNDS, "a command is not answered");
        }
    }
}

fn turn(nodes: &mut [Node<Counter>]) {
    for node in nodes {
        let _ = node.turn().expect("the node still runs");
    }
}

/// Three nodes and a client, each on its own thread, and the thread that calls the client.
pub struct Called {
    client: Client,
    group: Group,
    woken: Arc<Woken>,
    _nodes: Vec<NodeHandle<Counter>>,
    _directory: TempDir,
}

impl Called {
    /// Starts the nodes, connects the client, and sends the warm-up commands.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn ready() -> Self {
        let directory = TempDir::new();
        let cluster = cluster(&directory);
        let spawn = |name| cluster.node(name, Counter::default()).spawn().expect("the node starts");
        let nodes: Vec<_> = NAMES.into_iter().map(spawn).collect();
        let client = cluster.client().calls(64).connect().expect("the client connects");
        let group = cluster.group("g1").expect("the group is in the configuration");
        let woken = Arc::new(Woken { caller: thread::current(), woken: AtomicBool::new(false) });
        let mut called = Called { client, group, woken, _nodes: nodes, _directory: directory };
        for _ in 0..WARM_UP {
            called.command(|section| section());
        }
        called
    }

    /// Sends `commands`, one after the other, and counts the instructions of the caller: the call, the polls that find
    /// it pending, and the poll that returns the reply. Between polls the caller sleeps.
    ///
    /// # Panics
    /// Panics if a command is not applied.
    pub fn run(&mut self, commands: u64) {
        for _ in 0..commands {
            self.command(|section| counted_section(section));
        }
    }

    fn command(&mut self, count: impl Fn(&mut dyn FnMut())) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Tasks::from_waker(&waker);
        let (client, group, mut made) = (&self.client, self.group, None);
        count(&mut || made = Some(client.call(group, &COMMAND)));
        let mut call = pin!(made.expect("the call was made"));
        loop {
            let mut polled = Poll::Pending;
            count(&mut || polled = call.as_mut().poll(&mut context));
            if let Poll::Ready(answer) = polled {
                assert_eq!(answer.expect("the command is applied").bytes().len(), 8);
                return;
            }
            while !self.woken.woken.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }
    }
}

/// A waker that unparks the calling thread.
struct Woken {
    caller: Thread,
    woken: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.caller.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_answered() {
        Turned::local().run(10);
        Turned::protocol().run(10);
        Turned::by_hand().run(10);
        Called::ready().run(10);
    }
}
