//! Processes that are killed with queue pairs in every state: the kernel has nothing of theirs afterwards. Ignored unless asked
//! for: they need a device, which `cargo xtask test --only verbs` makes in a guest.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{BYTES, End, Host, host, pair, resources};
use stentor_fabric::{Access, Opcode, QpKind};
use stentor_fabric_verbs::qp::{Data, Tuning, Work};

/// How far a process comes before it is killed. One that gets further works on until it is dead.
const STAGES: [&str; 9] = ["opened", "reset", "init", "rtr", "rts", "receiving", "writing", "reading", "error"];
/// Processes that are killed.
const PROCESSES: usize = 180;
/// How often each connects and disconnects before; a little work goes over each connection.
const CONNECTS: usize = 6;
/// A fifth of them is killed at any time, at most so late, milliseconds.
const ANY_TIME: u64 = 150;
const STAGE: &str = "STENTOR_VERBS_STAGE";

fn reach(stage: &str, host: &Host) -> Option<[End; 2]> {
    match stage {
        "opened" => None,
        "reset" | "init" | "rtr" => {
            let ends = [End::new(host, QpKind::Reliable), End::new(host, QpKind::Reliable)];
            for (end, peer) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
                if stage != "reset" {
                    end.qp.init(host.own.port, Some(Access::Atomic)).unwrap();
                }
                if stage == "rtr" {
                    end.qp.ready_to_receive(host.own, &peer.endpoint(host, 1), &Tuning::default()).unwrap();
                }
            }
            Some(ends)
        }
        _ => Some(pair(host, QpKind::Reliable)),
    }
}

/// Work that never ends.
fn work(stage: &str, [a, b]: &[End; 2]) {
    let bytes = BYTES as u32 / 2;
    match stage {
        "receiving" => (0..16).for_each(|id| b.qp.post_recv(id, Some(b.local(0, bytes))).unwrap()),
        "error" => a.qp.fail().unwrap(),
        _ => {}
    }
    let mut told = false;
    loop {
        let under_way = match stage {
            "writing" => Work::Write { data: Data::Region(a.local(0, bytes)), remote: b.remote(0), imm: None },
            "reading" => Work::Read { local: a.local(0, bytes), remote: b.remote(0) },
            _ => break,
        };
        // Four at once, so that some are always on their way.
        (0..4).for_each(|id| a.qp.post(id, &under_way, true).unwrap());
        if !std::mem::replace(&mut told, true) {
            println!("reached");
        }
        for _ in 0..4 {
            a.completion();
        }
    }
}

/// What the killed processes run; by itself it does nothing.
#[test]
#[ignore = "a part of `whoever_is_killed_leaves_nothing_behind`"]
fn a_process_that_is_killed() {
    let Ok(stage) = std::env::var(STAGE) else { return };
    let host = host();
    for _ in 0..CONNECTS {
        let [a, b] = pair(&host, QpKind::Reliable);
        a.run(Work::Write { data: Data::Region(a.local(0, 64)), remote: b.remote(0), imm: None }, Opcode::Write);
    }
    let ends = reach(&stage, &host);
    if let Some(ends) = &ends {
        work(&stage, ends);
    }
    println!("reached");
    loop {
        std::thread::park();
    }
}

/// What there is once the kernel has tidied up, which it does a little after a process is gone.
fn settled(before: &str) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = resources();
        if now == before || Instant::now() > until {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs Soft-RoCE: run by `cargo xtask test --only verbs`"]
fn whoever_is_killed_leaves_nothing_behind() {
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
            held += usize::from(resources() != before);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if round % STAGES.len() == 0 {
            assert_eq!(settled(&before), before, "after {} processes", round + 1);
        }
    }
    assert_eq!(settled(&before), before);
    assert!(held * 2 > PROCESSES, "the processes held nothing while they lived: {held}");
    let (connects, seconds) = (PROCESSES * CONNECTS, begin.elapsed().as_secs_f64());
    println!(
        "{PROCESSES} processes killed, {connects} connections ended before, {seconds:.1} s; now as before:\n{before}"
    );
}
