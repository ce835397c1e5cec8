//! Measures the code of one multicast, without waiting and without context switches: two groups of three and a client
//! on shared memory, stepped in turn by one thread, with one message in flight.
//!
//! `cargo run --release -p stentor --example one_thread [MESSAGES]` prints the time per message. Instruction counts
//! vary less. To leave out the start, count them for two numbers of messages, and divide the difference of the counts
//! by the difference of the numbers:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/one_thread 2000
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use stentor::ClusterConfig;
use stentor::runtime::{Client, ClientId, ClusterRuntime, GroupId, Member, ShmFabric, stateless};
use stentor_fabric::ProcessId;

const CLUSTER: &str = r#"
cluster = "one-thread"
fabric = "shm"
[election]
kind = "heartbeat"
[limits]
# As `stentor bench multicast` has them.
clients = 1
message_bytes = 64
window = 16
body_ring_kib = 64
ring_kib = 64
[[group]]
id = "g1"
process = [ { id = "g1.1", address = "127.0.0.1:7101" }, { id = "g1.2", address = "127.0.0.1:7102" }, { id = "g1.3", address = "127.0.0.1:7103" } ]
[[group]]
id = "g2"
process = [ { id = "g2.1", address = "127.0.0.1:7201" }, { id = "g2.2", address = "127.0.0.1:7202" }, { id = "g2.3", address = "127.0.0.1:7203" } ]
"#;

const MEMBERS: u16 = 6;
const BOTH: [GroupId; 2] = [GroupId(0), GroupId(1)];
const PAYLOAD: [u8; 64] = [7; 64];
const WARM_UP: u64 = 300;
/// Number of messages that are timed together.
const BATCH: u64 = 500;

struct Nodes {
    members: Vec<Member<ShmFabric>>,
    client: Client<ShmFabric>,
    /// Clock of the nodes. It is constant while messages are counted, so there are no ticks.
    now: Duration,
    delivered: u64,
    rounds: u64,
}

impl Nodes {
    fn start(directory: &Path) -> Self {
        let config = ClusterConfig::parse(Path::new("cluster.toml"), CLUSTER).expect("the configuration is valid");
        let plan = ClusterRuntime::new(config).expect("the configuration is possible");
        let members = (0..MEMBERS)
            .map(|me| plan.member(ProcessId(me), directory.to_owned()).expect("the member starts"))
            .collect();
        let client = plan.client(ClientId(0), directory.to_owned()).expect("the client starts");
        let mut nodes = Nodes { members, client, now: Duration::ZERO, delivered: 0, rounds: 0 };
        while !(nodes.client.is_connected(&BOTH) && nodes.members.iter().all(Member::is_connected)) {
            nodes.now += Duration::from_millis(1);
            nodes.members.iter_mut().for_each(|member| {
                member.housekeep();
            });
            nodes.client.housekeep();
            nodes.round();
        }
        nodes
    }

    fn round(&mut self) {
        self.rounds += 1;
        let delivered = &mut self.delivered;
        for member in &mut self.members {
            member.step(self.now, &mut stateless(|_| *delivered += 1));
        }
        self.client.step();
    }

    fn run(&mut self, messages: u64) {
        for _ in 0..messages {
            let due = self.delivered + u64::from(MEMBERS);
            self.client.submit(&BOTH, &PAYLOAD, true).expect("there is room for one");
            while self.client.outstanding() > 0 || self.delivered < due {
                self.round();
            }
        }
    }
}

fn main() {
    let messages = std::env::args().nth(1).map_or(20_000, |word| word.parse().expect("a number of messages"));
    let directory = std::env::temp_dir().join(format!("stentor-one-thread-{}", std::process::id()));
    let mut nodes = Nodes::start(&directory);
    nodes.run(WARM_UP);
    let (mut fastest, rounds) = (f64::INFINITY, nodes.rounds);
    for batch in (0..messages).step_by(BATCH as usize) {
        let (since, part) = (Instant::now(), BATCH.min(messages - batch));
        nodes.run(part);
        fastest = fastest.min(since.elapsed().as_secs_f64() * 1e6 / part as f64);
    }
    let rounds = (nodes.rounds - rounds) as f64 / messages.max(1) as f64;
    println!("{messages} messages; in the fastest {BATCH}: {fastest:.2} us each; {rounds:.1} rounds of all nodes each");
    drop(nodes);
    let _ = std::fs::remove_dir_all(directory);
}
