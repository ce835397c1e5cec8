//! Tests of `stentor neb remove` with real processes on shared memory, in the mode where every process must answer.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ran, Scratch, ran, run, signal, stentor};

/// A running process and what it has printed.
struct Process {
    child: Child,
    input: ChildStdin,
    told: Arc<Mutex<Vec<String>>>,
    name: String,
    history: PathBuf,
}

/// A cluster whose processes all run.
struct Broadcast {
    scratch: Scratch,
    file: PathBuf,
    processes: Vec<Process>,
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Broadcast {
    fn start(n: usize) -> Self {
        let scratch = Scratch::new();
        let file = scratch.path("cluster.toml");
        let init = ["config", "init", "--groups", "1", "--replicas", &n.to_string(), "-o", file.to_str().unwrap()]
            .map(str::to_owned);
        assert_eq!(run(init).code, 0);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text + "\n[neb]\nmode = \"all\"\nwindow = 4\npayload_bytes = 64\n").unwrap();
        let processes = (1..=n).map(|n| Process::start(&scratch, &file, n)).collect();
        Broadcast { scratch, file, processes }
    }

    fn write_line(&mut self, process: usize, what: &str) {
        writeln!(self.processes[process].input, "{what}").unwrap();
    }

    fn remove_command(&self, ids: &str) -> Command {
        let mut command = stentor();
        command.args(["neb", "remove", "--json", "--id", ids, "--config"]).arg(&self.file);
        command.arg("--directory").arg(self.scratch.path("sockets")).stdin(Stdio::null());
        command
    }

    fn remove(&self, ids: &str) -> Ran {
        ran(&self.remove_command(ids).output().unwrap())
    }

    fn signal(&self, process: usize, what: Signal) {
        signal(self.processes[process].child.id(), what);
    }

    fn kill(&mut self, process: usize) {
        self.processes[process].child.kill().unwrap();
        self.processes[process].child.wait().unwrap();
    }

    /// Ends the remaining processes, and checks the histories of all processes. The history of a killed process ends
    /// where the process died.
    fn check(mut self, remain: &[usize]) -> Value {
        for process in remain {
            self.signal(*process, Signal::TERM);
            assert!(self.processes[*process].child.wait().unwrap().success());
        }
        // A killed process may have died while it wrote a line.
        for process in (0..self.processes.len()).filter(|process| !remain.contains(process)) {
            let history = &self.processes[process].history;
            let text = std::fs::read_to_string(history).unwrap();
            std::fs::write(history, &text[..=text.rfind('\n').unwrap()]).unwrap();
        }
        let histories = self.processes.iter().map(|process| process.history.clone());
        let arguments = ["check", "--complete", "--json"].into_iter().map(PathBuf::from);
        let ran = run(arguments.chain(histories));
        assert_eq!(ran.code, 0, "{}", ran.stdout);
        ran.document("check")
    }
}

impl Process {
    fn start(scratch: &Scratch, file: &Path, n: usize) -> Self {
        let (name, history) = (format!("g1.{n}"), scratch.path(&format!("g1.{n}.jsonl")));
        let mut command = stentor();
        command.args(["neb", "run", "--id", &name, "--config"]).arg(file).arg("--history").arg(&history);
        command.arg("--directory").arg(scratch.path("sockets"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (out, kept) = (BufReader::new(child.stdout.take().unwrap()), Arc::clone(&told));
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line)));
        Process { input: child.stdin.take().unwrap(), child, told, name, history }
    }

    fn has_printed(&self, what: &str) -> bool {
        self.told.lock().unwrap().iter().any(|line| line.contains(what))
    }

    fn wait_for(&self, what: &str) {
        let since = Instant::now();
        while !self.has_printed(what) {
            assert!(since.elapsed() < Duration::from_secs(200), "{}: {what}: {:?}", self.name, self.told.lock());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts four processes and kills the last one in the middle of its broadcasts. The others then wait for it.
fn stuck() -> Broadcast {
    let mut broadcast = Broadcast::start(4);
    for n in 0..6 {
        broadcast.write_line(3, &format!("last {n}"));
    }
    broadcast.processes[0].wait_for("last 5");
    for n in 6..40 {
        broadcast.write_line(3, &format!("last {n}"));
    }
    broadcast.kill(3);
    // The lines are more than a window, and the killed process frees no slot. Its memory stays readable until the
    // others notice its death.
    for n in 0..8 {
        broadcast.write_line(0, &format!("more {n}"));
    }
    broadcast.write_line(0, "without it");
    std::thread::sleep(Duration::from_millis(300));
    for process in &broadcast.processes[1..3] {
        assert!(!process.has_printed("without it"), "{}: every process must answer, and one is dead", process.name);
    }
    broadcast
}

fn end_of(process: &Process) -> String {
    process.told.lock().unwrap().iter().find(|line| line.contains("\"removed\"")).unwrap().clone()
}

#[test]
fn others_go_on_without_a_killed_process_and_agree_on_its_messages() {
    let mut broadcast = stuck();
    let document = broadcast.remove("g1.4").document("neb-remove");
    assert_eq!(document["removed"], serde_json::json!(["g1.4"]), "{document:#}");
    assert_eq!(document["remain"], serde_json::json!(["g1.1", "g1.2", "g1.3"]), "{document:#}");
    assert!(document["streams"][0]["upto"].as_u64().unwrap() >= 6, "{document:#}");
    broadcast.write_line(1, "afterwards");
    for process in &broadcast.processes[..3] {
        for what in ["without it", "afterwards", "\"removed\""] {
            process.wait_for(what);
        }
        assert_eq!(end_of(process), end_of(&broadcast.processes[0]));
    }
    let again = broadcast.remove("g1.4").document("neb-remove");
    assert_eq!((&again["already"], &again["streams"]), (&true.into(), &serde_json::json!([])), "{again:#}");
    let report = broadcast.check(&[0, 1, 2]);
    for property in ["B1", "B2", "B3", "B4", "B5"] {
        assert_eq!(report["properties"][property], "ok", "{report:#}");
    }
}

#[test]
fn command_killed_at_any_point_can_be_repeated() {
    let broadcast = stuck();
    for after in 0..30 {
        let mut command = broadcast.remove_command("g1.4").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(500 * after));
        let _ = command.kill();
        command.wait().unwrap();
    }
    let document = broadcast.remove("g1.4").document("neb-remove");
    assert_eq!(document["remain"], serde_json::json!(["g1.1", "g1.2", "g1.3"]), "{document:#}");
    for process in &broadcast.processes[..3] {
        process.wait_for("without it");
    }
    assert_eq!(broadcast.check(&[0, 1, 2])["properties"]["B1"], "ok");
}

#[test]
fn removed_process_that_runs_ends_with_the_reason() {
    let mut broadcast = Broadcast::start(3);
    broadcast.write_line(2, "the last word");
    broadcast.processes.iter().for_each(|process| process.wait_for("the last word"));
    assert_eq!(broadcast.remove("g1.3").code, 0);
    let Process { child, .. } = &mut broadcast.processes[2];
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("an operator removed `g1.3`"), "{said}");
    broadcast.write_line(0, "two are left");
    broadcast.processes[..2].iter().for_each(|process| process.wait_for("two are left"));
    let minority = broadcast.remove("g1.2");
    assert_eq!(minority.code, 2);
    assert!(minority.stderr.contains("1 of 2 members would remain: no majority"), "{}", minority.stderr);
    assert_eq!(broadcast.check(&[0, 1])["properties"]["B2"], "ok");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn removal_without_agreement_is_refused_and_changes_no_state() {
    let mut broadcast = stuck();
    let refused = |ran: Ran, code: i32, parts: &[&str]| {
        assert_eq!(ran.code, code, "{}", ran.stderr);
        parts.iter().for_each(|part| assert!(ran.stderr.contains(part), "`{part}` is not in: {}", ran.stderr));
    };
    refused(broadcast.remove("g1.9"), 2, &["`g1.9` is no process of the broadcast", "g1.1, g1.2, g1.3, g1.4"]);
    refused(broadcast.remove("g1.3,g1.4"), 2, &["2 of 4 members would remain: no majority"]);
    refused(
        broadcast.remove("g1.1"),
        1,
        &["`g1.4`, which would remain, cannot be reached", "all remaining processes must agree"],
    );
    broadcast.signal(1, Signal::STOP);
    refused(broadcast.remove("g1.4"), 1, &["`g1.2`, which would remain, does not answer"]);
    broadcast.signal(1, Signal::CONT);
    broadcast.kill(2);
    refused(broadcast.remove("g1.4"), 1, &["`g1.3`, which would remain, cannot be reached"]);
    assert!(!broadcast.processes[0].has_printed("removed"), "nothing is removed");
    let quorum = broadcast.scratch.file(
        "quorum.toml",
        &std::fs::read_to_string(&broadcast.file)
            .unwrap()
            .replace("mode = \"all\"", "mode = \"quorum\"\nfault_model = \"lying-sender\""),
    );
    broadcast.file = quorum;
    refused(broadcast.remove("g1.4"), 2, &["processes are removed in mode `all` only"]);
}

#[test]
fn command_with_another_configuration_is_refused() {
    let mut broadcast = Broadcast::start(3);
    let text = std::fs::read_to_string(&broadcast.file).unwrap();
    broadcast.write_line(0, "all are up");
    broadcast.processes.iter().for_each(|process| process.wait_for("all are up"));
    broadcast.file = broadcast.scratch.file("other.toml", &text.replace("window = 4", "window = 5"));
    let refused = broadcast.remove("g1.3");
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("`g1.1` refuses: it was started with another configuration"), "{}", refused.stderr);
}
