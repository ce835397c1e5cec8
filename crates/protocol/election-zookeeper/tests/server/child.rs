//! A candidate in a separate process, which can be stopped and killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::candidate::{Candidate, config};

const WHAT: &str = "STENTOR_ELECTION_CANDIDATE";

/// Entry point of the separate process: the same test program, with this test alone.
#[test]
#[ignore = "other tests start it as a process of its own"]
fn candidate_process() {
    let what = std::env::var(WHAT).expect("started by another test");
    let [me, server, root, session] = what.split(' ').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let session = Duration::from_millis(session.parse().expect("milliseconds"));
    let mut candidate = Candidate::start(config(me.parse().expect("a number"), &[server], root, session));
    let mut told = 0;
    loop {
        candidate.poll();
        for change in &candidate.log[told..] {
            println!("told: {change}");
        }
        told = candidate.log.len();
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    pub(crate) told: Vec<String>,
}

impl Process {
    pub(crate) fn start(me: u16, server: &str, root: &str, session: Duration) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", "child::candidate_process", "--ignored", "--nocapture"])
            .env(WHAT, format!("{me} {server} {root} {}", session.as_millis()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("its output"));
        std::thread::spawn(move || {
            // The test harness writes the beginning of the first line.
            let told =
                output.lines().map_while(Result::ok).filter_map(|line| Some(line.split_once("told: ")?.1.to_owned()));
            told.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        Process { child, lines, told: Vec::new() }
    }

    /// Waits until the process has printed a change that contains `wanted`.
    pub(crate) fn until(&mut self, wanted: &str) {
        let begin = Instant::now();
        while !self.told.iter().any(|line| line.contains(wanted)) {
            assert!(begin.elapsed() < Duration::from_secs(30), "{wanted:?} was not told: {:?}", self.told);
            self.told.extend(self.lines.recv_timeout(Duration::from_millis(10)));
        }
    }

    pub(crate) fn stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("a running candidate");
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("a stopped candidate");
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
