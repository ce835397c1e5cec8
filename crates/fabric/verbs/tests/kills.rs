//! Kills processes with queue pairs in each state, and checks that the kernel has none of their objects afterwards.
//! Ignored by default: the tests need a device, which `cargo xtask test --only verbs` creates in a guest.

mod common;
mod kernel;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{BYTES, End, Host, host, pair};
use kernel::{resources, settled};
use stentor_fabric::{Access, Opcode, QpKind};
use stentor_fabric_verbs::qp::{Data, Tuning, Work};
use stentor_fabric_verbs::{Domain, Region};

/// States in which processes are killed. A process in a state whose name ends in -ing repeats an operation until it is
/// killed.
const STAGES: [&str; 14] = [
    "opened",
    "reset",
    "init",
    "rtr",
    "rts",
    "receives posted",
    "unanswered",
    "error",
    "writing",
    "reading",
    "flushing",
    "registering",
    "making",
    "connecting",
];
/// Number of processes to kill.
const PROCESSES: usize = 8 * STAGES.len();
/// Number of times that each process connects and disconnects before it enters its state. Each connection transfers one
/// WRITE.
const CONNECTS: usize = 2;
/// Latest time after its start at which every fifth process is killed, in milliseconds, whatever its state.
const ANY_TIME: u64 = 150;
/// Longest time for which the other processes stay in their state before they are killed, in milliseconds.
const TOIL: u64 = 13;
const STAGE: &str = "STENTOR_VERBS_STAGE";

fn meet(host: &Host, end: &End, peer: &End) {
    end.qp.ready_to_receive(host.own, &peer.endpoint(host, 1), &Tuning::default()).unwrap();
}

/// Creates the objects of a process in the state `stage`.
fn reach(stage: &str, host: &Host) -> Vec<End> {
    let new = || End::new(host, QpKind::Reliable);
    match stage {
        "opened" | "registering" | "making" => Vec::new(),
        "reset" | "init" | "rtr" => {
            let ends = [new(), new()];
            for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
                if stage != "reset" {
                    end.qp.init(host.own.port, Some(Access::Atomic)).unwrap();
                }
                if stage == "rtr" {
                    meet(host, end, peer);
                }
            }
            ends.into()
        }
        _ => {
            let mut ends = Vec::from(pair(host, QpKind::Reliable));
            let bytes = BYTES as u32 / 2;
            match stage {
                "receives posted" => {
                    (0..16).for_each(|id| ends[1].qp.post_recv(id, Some(ends[1].local(0, bytes))).unwrap());
                }
                "unanswered" => {
                    let remote = ends[1].remote(0);
                    ends.truncate(1);
                    let work = Work::Write { data: Data::Region(ends[0].local(0, bytes)), remote, imm: None };
                    (0..16).for_each(|id| ends[0].qp.post(id, &work, true).unwrap());
                }
                "error" | "flushing" => ends[0].qp.fail().unwrap(),
                _ => {}
            }
            ends
        }
    }
}

/// Performs the operation of a state once. Returns whether the state has an operation.
fn perform_operation(stage: &str, host: &Host, ends: &[End]) -> bool {
    let bytes = BYTES as u32 / 2;
    match stage {
        "writing" | "reading" | "flushing" => {
            let [a, b] = ends else { unreachable!("two ends") };
            let work = match stage {
                "reading" => Work::Read { local: a.local(0, bytes), remote: b.remote(0) },
                _ => Work::Write { data: Data::Region(a.local(0, bytes)), remote: b.remote(0), imm: None },
            };
            // Keep several requests outstanding.
            (0..8).for_each(|id| a.qp.post(id, &work, true).unwrap());
            (0..8).for_each(|_| assert_eq!(a.completion().opcode.is_none(), stage == "flushing"));
        }
        "registering" => {
            let domain = Domain::new(&host.context).unwrap();
            let region = Region::register(&domain, 64 * BYTES, Some(Access::Write)).unwrap();
            region.deregister().map_err(|(_, errno)| errno).unwrap();
        }
        "making" => drop(End::new(host, QpKind::Reliable)),
        "connecting" => {
            let [a, b] = ends else { unreachable!("two ends") };
            for (end, peer) in [(a, b), (b, a)] {
                end.qp.reset().unwrap();
                end.qp.init(host.own.port, Some(Access::Atomic)).unwrap();
                meet(host, end, peer);
                end.qp.ready_to_send(host.own, 1, &Tuning::default()).unwrap();
            }
        }
        _ => return false,
    }
    true
}

/// The program of the processes to kill. It does nothing if it is not started by the other test.
#[test]
#[ignore = "a part of `killed_processes_leave_no_objects_in_the_kernel`"]
fn a_process_that_is_killed() {
    let Ok(stage) = std::env::var(STAGE) else { return };
    let host = host();
    for _ in 0..CONNECTS {
        let [a, b] = pair(&host, QpKind::Reliable);
        a.run(Work::Write { data: Data::Region(a.local(0, 64)), remote: b.remote(0), imm: None }, Opcode::Write);
    }
    let ends = reach(&stage, &host);
    println!("reached");
    while perform_operation(&stage, &host, &ends) {}
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn killed_processes_leave_no_objects_in_the_kernel() {
    let before = resources();
    assert!(before.contains("qp") && before.contains("mr") && before.contains("cq"), "{before}");
    let (begin, mut held) = (Instant::now(), 0);
    for round in 0..PROCESSES {
        let stage = STAGES[round % STAGES.len()];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_process_that_is_killed", "--nocapture"])
            .env(STAGE, stage)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        if round % 5 == 4 {
            std::thread::sleep(Duration::from_millis(round as u64 * 7 % ANY_TIME));
        } else {
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let reached = lines.by_ref().any(|line| line.unwrap().ends_with("reached"));
            assert!(reached, "round {round}: the process ended before `{stage}`");
            // Wait, so that the process is killed in the middle of its repeated operation.
            std::thread::sleep(Duration::from_millis(round as u64 * 5 % TOIL));
            held += usize::from(resources() != before);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if round % STAGES.len() == 0 {
            assert_eq!(settled(Some(&before)), before, "after {} processes", round + 1);
        }
    }
    assert_eq!(settled(Some(&before)), before);
    assert!(held * 2 > PROCESSES, "only {held} processes had objects before they were killed");
    let (connects, seconds) = (PROCESSES * CONNECTS, begin.elapsed().as_secs_f64());
    println!(
        "{PROCESSES} processes killed, {connects} connections ended before that, {seconds:.1} s; the kernel's objects are the same as before:\n{before}"
    );
}
