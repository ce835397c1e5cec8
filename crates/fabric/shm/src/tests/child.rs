//! Real processes: this test program, started again with a role.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stentor_fabric::{
    Access, Backoff, Event, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionSpec, RemoteSpan, Status,
    WaitMode,
};

use super::support::*;
use crate::ShmFabric;

/// The region in which a child shows that it is alive.
pub(super) const BEATS: Purpose = Purpose(4);

/// A running child. It is killed when dropped.
pub(super) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    pub(super) fn start(role: &str, directory: &TestDirectory, id: u16) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::child::failing_child_is_noticed", "--nocapture", "--test-threads=1"])
            .env("STENTOR_SHM_ROLE", role)
            .env("STENTOR_SHM_DIRECTORY", &directory.0)
            .env("STENTOR_SHM_ID", id.to_string())
            .stdout(Stdio::piped())
            .stderr(if role == "nonsense" { Stdio::null() } else { Stdio::inherit() })
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The test harness writes on the same line.
                if let Some((_, line)) = line.split_once("> ") {
                    let _ = sender.send(line.to_owned());
                }
            }
        });
        Child { process, lines }
    }

    pub(super) fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// Returns the next line that the child printed.
    pub(super) fn line(&mut self) -> Option<String> {
        match self.lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the child ended: {:?}", self.process.try_wait()),
        }
    }

    pub(super) fn kill(&mut self) {
        kill_process(Pid::from_raw(self.pid()).unwrap(), Signal::KILL).unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Child processes, which have a role, also start here.
#[test]
fn failing_child_is_noticed() {
    if let Ok(role) = std::env::var("STENTOR_SHM_ROLE") {
        return play(&role);
    }
    let mut child = Child::start("nonsense", &TestDirectory::new(), 1);
    assert!(!child.process.wait().unwrap().success());
}

fn play(role: &str) {
    let var = |name: &str| std::env::var(name).expect("a child has it");
    let id: u16 = var("STENTOR_SHM_ID").parse().unwrap();
    let directory = std::path::PathBuf::from(var("STENTOR_SHM_DIRECTORY"));
    let mut fabric = ShmFabric::start(config(&directory, id, 2)).unwrap();
    let qp = fabric.connect(ProcessId(0), SERVICE, QpConfig::reliable(64, 4)).unwrap();
    match role {
        "rogue" => rogue(&mut fabric, qp),
        "writer" => writer(&mut fabric, qp),
        "echo" => echo(&mut fabric, qp),
        "large" => large(&mut fabric, qp),
        other => panic!("no role {other}"),
    }
}

fn connect(fabric: &mut ShmFabric, qp: QpId) {
    until("connected", || events(fabric).contains(&Event::Connected { qp, peer: ProcessId(0) }));
}

/// Ignores generations and messages, and keeps storing through its mappings alone.
fn rogue(fabric: &mut ShmFabric, qp: QpId) {
    connect(fabric, qp);
    let find = |purpose| {
        let region = fabric.data.remotes.resolve(ProcessId(0), purpose).unwrap();
        let (_, remote) = fabric.data.remotes.find(ProcessId(0), &RemoteSpan { region, offset: 0 }).unwrap();
        remote.writable(0, region.bytes).unwrap()
    };
    let (written, beats) = (find(PURPOSE), find(BEATS));
    for beat in 1.. {
        for word in written {
            word.store(beat, std::sync::atomic::Ordering::Relaxed);
        }
        beats[0].fetch_add(written.len() as u64, std::sync::atomic::Ordering::Release);
    }
}

/// Writes 1, 2, 3 … over the whole region. When a write fails, it prints the number of the last successful one,
/// reconnects, and continues from there.
fn writer(fabric: &mut ShmFabric, qp: QpId) {
    let mut done = 0;
    loop {
        connect(fabric, qp);
        let mut region = None;
        until("granted", || {
            fabric.next_event();
            region = fabric.resolve(ProcessId(0), PURPOSE);
            region.is_some()
        });
        let target = RemoteSpan { region: region.unwrap(), offset: 0 };
        while fabric.state(qp) == QpState::Ready {
            let Ok(()) = write(fabric, qp, done + 1, target, &[done + 1; (BYTES / 8) as usize], true) else { break };
            for (id, status) in ends(&poll(fabric)) {
                assert!(matches!(status, Status::Success | Status::RemoteAccess), "{status:?}");
                if status == Status::Success {
                    done = id;
                }
            }
        }
        println!("> {done}");
        fabric.reset(qp).unwrap();
    }
}

/// Copies each new value that it sees in word 0 of its region to word 0 of process 0's region, and sleeps in between.
fn echo(fabric: &mut ShmFabric, qp: QpId) {
    let spec = RegionSpec { purpose: PURPOSE, writer: ProcessId(0), bytes: BYTES };
    let own = fabric.register(spec).unwrap();
    fabric.grant(own, ProcessId(0), Access::Write).unwrap();
    connect(fabric, qp);
    println!("> ready");
    let target = RemoteSpan { region: fabric.resolve(ProcessId(0), PURPOSE).unwrap(), offset: 0 };
    let mut backoff = Backoff::new(WaitMode::BLOCK);
    let mut last = 0;
    while fabric.state(qp) == QpState::Ready {
        let value = load(fabric, own, 0);
        if value != last {
            write(fabric, qp, value, target, &[value], true).unwrap();
            poll(fabric);
        }
        backoff.pause(fabric, value != last, Duration::from_secs(20)).unwrap();
        last = value;
        fabric.next_event();
    }
}

/// Registers and touches so much memory that the kernel needs some milliseconds to free it. Then polls.
fn large(fabric: &mut ShmFabric, qp: QpId) {
    const BYTES: u64 = 256 << 20;
    let memory = fabric.register(RegionSpec { purpose: Purpose(9), writer: fabric.me(), bytes: BYTES }).unwrap();
    for page in fabric.memory(memory).chunks(512) {
        page[0].store(1, stentor_fabric::memory::Ordering::Relaxed);
    }
    connect(fabric, qp);
    println!("> ready");
    while fabric.state(qp) == QpState::Ready {
        poll(fabric);
        fabric.next_event();
    }
}
