//! A custom election: an operator appoints the leader, and no member replaces the leader by itself.
//!
//! `cargo run -p stentor --example own_election` runs three members of a group in one thread and appoints one after the
//! other. Safety never depends on an election. A wrong election costs time, but ballots and majorities protect what is
//! agreed.
//!
//! A node elects by heartbeats. With the feature `unstable-core`, a program can replace the election through
//! `NodeBuilder::start_hooked`. This example turns members without nodes, which is shorter. The documentation of the
//! crate `stentor-election` states the rules of an election.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use stentor::config::ClusterConfig;
use stentor::runtime::{ClusterRuntime, ElectionDriver, GroupId, Member, ShmFabric, stateless};
use stentor_election::{Change, Election, HandOverError};
use stentor_fabric::ProcessId;

const CLUSTER: &str = r#"
cluster = "appointed"
fabric = "shm"
[election]
kind = "heartbeat"
[[group]]
id = "g"
process = [ { id = "a", address = "h1:1" }, { id = "b", address = "h2:1" }, { id = "c", address = "h3:1" } ]
"#;
/// Time limit of the example; reached only if it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The last appointment: its number, and the appointed process. Every member can read the board. In a real program the
/// board is a file or a service.
#[derive(Clone, Default)]
struct Board(Rc<Cell<Option<(u64, ProcessId)>>>);

impl Board {
    fn appoint(&self, process: ProcessId, above: u64) {
        let last = self.0.get().map_or(0, |(epoch, _)| epoch);
        self.0.set(Some((last.max(above) + 1, process)));
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
        let (epoch, process) = self.board.0.get().filter(|(epoch, _)| *epoch > self.told)?;
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

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("stentor-appointed-{}", std::process::id()));
    let plan = ClusterRuntime::new(ClusterConfig::parse("cluster.toml".as_ref(), CLUSTER)?)?;
    let processes: Vec<ProcessId> = plan.topology().members(GroupId(0)).collect();
    let (board, interval, patience) = (Board::default(), Duration::from_millis(5), Duration::from_millis(100));
    let mut members: Vec<(Member<ShmFabric>, ElectionDriver<Appointed>)> = Vec::new();
    for &me in &processes {
        let election = Appointed { board: board.clone(), me, told: 0, leads_in: None };
        let driver = ElectionDriver::new(election, me, &processes, interval, patience);
        members.push((plan.joining_on(plan.shm(me, directory.clone())?, me)?, driver));
    }
    // A group starts with its first member as leader. Afterwards the operator decides.
    let start = Instant::now();
    for (at, appoint) in [(0, None), (2, Some(2)), (1, Some(1))] {
        if let Some(next) = appoint {
            println!("{} is appointed", plan.name(processes[next]));
            board.appoint(processes[next], 0);
        }
        while !members[at].0.replica().is_leader() {
            for (member, driver) in &mut members {
                let now = start.elapsed();
                member.housekeep();
                member.step(now, &mut stateless(|_| ()));
                driver.poll(now, member);
            }
            if start.elapsed() > PATIENCE {
                return Err("the appointed member does not lead".into());
            }
        }
        println!("{} leads", plan.name(processes[at]));
    }
    // The directory is removed with its last member.
    Ok(())
}
