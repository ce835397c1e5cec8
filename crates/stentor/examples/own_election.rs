//! A custom election: an operator appoints the leader, and no member replaces the leader by itself.
//!
//! `cargo run -p stentor --example own_election` runs three members of a group in one thread and appoints one after the
//! other. Safety never depends on an election. A wrong election costs time, but ballots and majorities protect what is
//! agreed.
//!
//! A node elects by heartbeats. With the feature `unstable-core`, `NodeBuilder::start_elected` replaces the election.
//! The documentation of the crate `stentor-election` states the rules of an election.

use std::error::Error;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stentor::operator::NodeElection;
use stentor::{Cluster, Context, Node, Reply, StateMachine, Stateless, WaitMode};
use stentor_election::{Change, Election, HandOverError};
use stentor_fabric::ProcessId;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Time limit of the example; reached only if it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The last appointment: its number, and the appointed process. Every member can read the board. In a real program the
/// board is a file or a service.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Option<(u64, ProcessId)>>>);

impl Board {
    fn last(&self) -> Option<(u64, ProcessId)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn appoint(&self, process: ProcessId, above: u64) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((last.map_or(0, |(epoch, _)| epoch).max(above) + 1, process));
    }
}

/// The election at one member, which reports the changes of the board.
struct Appointed {
    board: Board,
    me: ProcessId,
    told: u64,
    leads_in: Option<u64>,
}

impl Election for Appointed {
    /// Reports one change at a time. Epochs never decrease, and a leader resigns before another process is named.
    fn poll(&mut self, _now: Duration) -> Option<Change> {
        let (epoch, process) = self.board.last().filter(|(epoch, _)| *epoch > self.told)?;
        if process != self.me
            && let Some(epoch) = self.leads_in.take()
        {
            return Some(Change::Resigned { epoch });
        }
        self.told = epoch;
        self.leads_in = (process == self.me).then_some(epoch);
        Some(Change::Leader { epoch, process })
    }

    /// Refuses to hand over: only the operator appoints.
    fn hand_over(&mut self, _: ProcessId) -> Result<(), HandOverError> {
        Err(HandOverError::Unsupported)
    }

    /// Called when the protocol receives a ballot. A leader whose number is not larger is appointed again, with a
    /// larger number.
    fn witness(&mut self, epoch: u64, _: ProcessId) {
        if self.leads_in.is_some_and(|own| own <= epoch) {
            self.board.appoint(self.me, epoch);
        }
    }
}

/// The defaults suffice, because this election ignores which members are eligible.
impl NodeElection for Appointed {}

/// A state machine that ignores its commands.
struct Nothing;

impl StateMachine for Nothing {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {}

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("stentor-appointed-{}", std::process::id()));
    let members = (1..).zip(NAMES).map(|(n, name)| (name, format!("127.0.0.{n}:7101")));
    let cluster = Cluster::builder("appointed").group("g", members).directory(directory).build()?;
    let board = Board::default();
    let start = |name| {
        let board = board.clone();
        let node = cluster.node(name, Nothing).wait(WaitMode::BLOCK);
        node.start_elected(move |_, me| Ok(Appointed { board: board.clone(), me, told: 0, leads_in: None }))
    };
    let mut nodes: Vec<Node<Nothing>> = NAMES.into_iter().map(start).collect::<Result<_, _>>()?;
    // A group starts with its first member as leader. Afterwards the operator decides.
    let since = Instant::now();
    for (at, appoint) in [(0, None), (2, Some(2)), (1, Some(1))] {
        if let Some(next) = appoint {
            println!("{} is appointed", NAMES[usize::from(next)]);
            board.appoint(ProcessId(next), 0);
        }
        while !nodes[at].status().leads {
            for node in &mut nodes {
                let _ = node.turn()?;
            }
            if since.elapsed() > PATIENCE {
                return Err("the appointed member does not lead".into());
            }
        }
        println!("{} leads", NAMES[at]);
    }
    // The directory is removed with its last node.
    Ok(())
}
