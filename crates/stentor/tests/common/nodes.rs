//! Nodes of groups of three in this process, and a client that multicasts numbers to them.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stentor::runtime::{ClientId, ClusterRuntime, GroupId, Housekeeper, WaitMode, client_round};
use stentor::{Cluster, ClusterConfig, Context, Frozen, Reply, StateMachine};
use stentor_fabric::Backoff;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Command at which machines panic if they are configured to.
pub(crate) const PANIC: u64 = 1 << 62;
/// Time limit; reached only if a test hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The behaviour of a machine, apart from its value. It may differ from member to member.
#[derive(Default)]
pub(crate) struct Manner {
    /// Milliseconds that the next command takes.
    pub(crate) once_ms: AtomicU64,
    /// Microseconds that each command takes.
    pub(crate) each_us: AtomicU64,
    pub(crate) panics: AtomicBool,
    /// `true` if clients have sessions. The sessions' own messages are numbered, too.
    pub(crate) has_sessions: AtomicBool,
}

/// Adds the numbers that are multicast, and records the order and the senders.
#[derive(Clone, Default)]
pub(crate) struct Sum {
    pub(crate) sum: u64,
    pub(crate) count: u64,
    pub(crate) order: u64,
    pub(crate) last_time: u64,
    pub(crate) senders: Vec<String>,
    pub(crate) manner: Arc<Manner>,
}

impl StateMachine for Sum {
    type Frozen = Sum;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let number = u64::from_le_bytes(command.try_into().expect("eight bytes"));
        thread::sleep(Duration::from_millis(self.manner.once_ms.swap(0, Ordering::Relaxed)));
        thread::sleep(Duration::from_micros(self.manner.each_us.load(Ordering::Relaxed)));
        self.count += 1;
        let has_sessions = self.manner.has_sessions.load(Ordering::Relaxed);
        let ahead = at.position().index.checked_sub(self.count);
        assert!(ahead.is_some_and(|ahead| has_sessions || ahead == 0), "no command is lost or applied twice");
        assert!(at.time() >= self.last_time, "time never decreases");
        self.last_time = at.time();
        self.order = self.order.wrapping_mul(31).wrapping_add(number);
        self.sum = self.sum.wrapping_add(number);
        if self.senders.iter().all(|sender| sender != at.sender()) {
            self.senders.push(at.sender().to_owned());
        }
        assert!(number != PANIC || !self.manner.panics.load(Ordering::Relaxed), "as requested");
        reply.extend(&self.sum.to_le_bytes());
    }

    fn freeze(&self) -> Sum {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut word = || {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        (self.sum, self.count, self.order, self.last_time) = (word()?, word()?, word()?, word()?);
        let mut senders = String::new();
        from.read_to_string(&mut senders)?;
        self.senders = senders.split_terminator(' ').map(str::to_owned).collect();
        Ok(())
    }
}

impl Frozen for Sum {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let words = [self.sum, self.count, self.order, self.last_time];
        words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))?;
        self.senders.iter().try_for_each(|sender| write!(out, "{sender} "))
    }
}

/// Returns a cluster on shared memory with these groups. The members of group `g` are `ga`, `gb` and `gc`.
pub(crate) fn cluster(name: &str, directory: &Path, groups: &[&str]) -> Cluster {
    let silence = Duration::from_millis(400)..=Duration::from_millis(800);
    let (mut builder, mut ports) = (Cluster::builder(name).election(silence).directory(directory), 7101..);
    for group in groups {
        let members = NAMES.iter().zip(ports.by_ref());
        builder =
            builder.group(group, members.map(|(name, port)| (format!("{group}{name}"), format!("127.0.0.1:{port}"))));
    }
    builder.build().expect("a valid cluster")
}

/// Returns the configuration of such a cluster as the text of a file.
fn text(cluster: &Cluster) -> String {
    let mut text = format!(
        "cluster = \"{}\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\ntimeout_min_ms = 400\ntimeout_max_ms = 800\n",
        cluster.name()
    );
    let mut ports = 7101..;
    for group in cluster.groups() {
        let members = cluster.members(group).zip(ports.by_ref());
        let members = members.map(|(id, port)| format!("{{ id = \"{id}\", address = \"127.0.0.1:{port}\" }}, "));
        let members: String = members.collect();
        text += &format!("[[group]]\nid = \"{}\"\nprocess = [ {members} ]\n", cluster.group_name(group));
    }
    text
}

/// Multicasts these numbers to a group, until a majority has each of them or `gives_up` has passed. Returns the number
/// of messages that a majority has.
pub(crate) fn send(
    cluster: &Cluster,
    directory: &Path,
    group: u16,
    numbers: impl Iterator<Item = u64>,
    gives_up: Duration,
) -> u64 {
    let config = ClusterConfig::parse(Path::new("same.toml"), &text(cluster)).expect("the configuration is valid");
    let plan = ClusterRuntime::new(config).expect("the configuration is possible");
    let mut client = plan.client(ClientId(group), directory.to_owned()).expect("the client starts");
    let (mut backoff, mut housekeeper) = (Backoff::new(WaitMode::ADAPTIVE), Housekeeper::default());
    let (since, to) = (Instant::now(), [GroupId(group)]);
    let mut numbers = numbers.peekable();
    while (numbers.peek().is_some() || client.outstanding() > 0) && since.elapsed() < gives_up {
        while let Some(number) = numbers.peek()
            && client.is_connected(&to)
            && client.submit(&to, &number.to_le_bytes(), true).is_ok()
        {
            numbers.next();
        }
        client_round(&mut client, &mut backoff, &mut housekeeper, false).expect("the client waits without an error");
    }
    client.submitted() - client.outstanding() as u64
}
