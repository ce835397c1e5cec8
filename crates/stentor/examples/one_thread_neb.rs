//! Measures the code of one broadcast, without waiting and without context switches: three processes on shared memory,
//! stepped in turn by one thread, with a full window in flight.
//!
//! `cargo run --release -p stentor --example one_thread_neb [BROADCASTS] [WINDOW] [all]` prints the time per broadcast.
//! Instruction counts vary less. To leave out the start, count them for two numbers of broadcasts, and divide the
//! difference of the counts by the difference of the numbers:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/one_thread_neb 2000 64
//! ```

use std::path::Path;
use std::time::Instant;

use stentor::runtime::ShmFabric;
use stentor_fabric::ProcessId;
use stentor_fabric_shm::ShmConfig;
use stentor_neb::{BroadcastError, Config, FaultModel, Mode, Node, Notice};

const PROCESSES: u16 = 3;
const PAYLOAD: [u8; 64] = [7; 64];
const WARM_UP: u64 = 500;

struct Nodes {
    all: Vec<Node<ShmFabric>>,
    delivered: [u64; PROCESSES as usize],
    rounds: u64,
}

impl Nodes {
    fn start(directory: &Path, window: u32, mode: Mode) -> Self {
        let sized = Config::new(usize::from(PROCESSES), mode, 0);
        let config = Config { window, payload_bytes: PAYLOAD.len(), fast_path: true, ..sized };
        let node = |process: u16| {
            let me = ProcessId(process);
            let shm = ShmConfig {
                directory: directory.to_owned(),
                ..ShmConfig::new("one-thread", me, &me.to_string(), PROCESSES)
            };
            Node::new(ShmFabric::start(shm).expect("the fabric starts"), config, 1, None).expect("a possible process")
        };
        let mut nodes = Nodes { all: (0..PROCESSES).map(node).collect(), delivered: [0; 3], rounds: 0 };
        while !nodes.all.iter().all(Node::is_connected) {
            nodes.all.iter_mut().for_each(|node| {
                node.housekeep();
            });
            nodes.round();
        }
        nodes
    }

    fn round(&mut self) {
        self.rounds += 1;
        for (node, delivered) in self.all.iter_mut().zip(&mut self.delivered) {
            node.step(&mut |notice| {
                if let Notice::Deliver(..) = notice {
                    *delivered += 1;
                }
            });
        }
    }

    fn run(&mut self, broadcasts: u64) {
        let due = self.delivered[1] + broadcasts;
        let mut sent = 0;
        while self.delivered[1] < due || self.delivered[2] < due {
            while sent < broadcasts {
                match self.all[0].enqueue(0, sent, &PAYLOAD) {
                    Ok(_) => sent += 1,
                    Err(BroadcastError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.round();
        }
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let broadcasts = words.next().map_or(100_000, |word| word.parse().expect("a number of broadcasts"));
    let window = words.next().map_or(64, |word| word.parse().expect("a window"));
    let mode = if words.next().is_some() { Mode::All } else { Mode::Quorum(FaultModel::LyingSender) };
    let directory = std::env::temp_dir().join(format!("stentor-one-thread-neb-{}", std::process::id()));
    let mut nodes = Nodes::start(&directory, window, mode);
    nodes.run(WARM_UP);
    let (since, rounds) = (Instant::now(), nodes.rounds);
    nodes.run(broadcasts);
    let each = since.elapsed().as_secs_f64() * 1e9 / broadcasts as f64;
    let rounds = (nodes.rounds - rounds) as f64 / broadcasts as f64;
    println!("{broadcasts} broadcasts, {each:.0} ns each; {rounds:.2} rounds of all processes each");
    drop(nodes);
    let _ = std::fs::remove_dir_all(directory);
}
