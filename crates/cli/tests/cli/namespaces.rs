//! Members in namespaces of their own: a matrix of flags × fabrics × stages, one line a cell, in `namespaces.txt`.
//!
//! `cargo test` runs the short part; with `STENTOR_MATRIX=whole` all cells run (`cargo xtask nightly`). Each cell first shows that
//! its flags make another namespace. A machine that does not allow any is told of, and cannot try it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, ran, stentor};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);
const MATRIX: &str = include_str!("namespaces.txt");
const MEMBERS: [&str; 3] = ["g1.1", "g1.2", "g1.3"];

/// A line of the matrix.
struct Cell<'a> {
    line: &'a str,
    flags: Vec<&'a str>,
    kind: &'a str,
    fabric: &'a str,
    stage: &'a str,
    expected: &'a str,
    short: bool,
}

fn cells() -> impl Iterator<Item = Cell<'static>> {
    MATRIX.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let [flags, kind, fabric, stage, expected, part] = parts[..] else { panic!("not six parts: {line}") };
        assert!(["short", "whole"].contains(&part), "{line}");
        let flags = flags.split_ascii_whitespace().collect();
        Cell { line, flags, kind, fabric, stage, expected, short: part == "short" }
    })
}

impl Cell<'_> {
    /// Whether a process with these flags is in another namespace than this one. `None`: they are not allowed here.
    fn bites(&self) -> Option<bool> {
        let link = format!("/proc/self/ns/{}", self.kind);
        // Without a `/proc` of its own a process in another PID namespace has none there: its parent made it.
        let seen = if self.flags.contains(&"-p") {
            let pid = Command::new("unshare").args(&self.flags).args(["sh", "-c", "echo $$"]).output().ok()?;
            return pid.status.success().then(|| pid.stdout == b"1\n");
        } else {
            Command::new("unshare").args(&self.flags).args(["readlink", &link]).output().ok()?
        };
        let own = fs::read_link(&link).ok()?;
        seen.status.success().then(|| String::from_utf8_lossy(&seen.stdout).trim() != own.to_string_lossy())
    }
}

/// A cluster whose members are each in namespaces of their own.
struct Apart<'a> {
    cell: &'a Cell<'a>,
    scratch: Scratch,
    config: PathBuf,
    nodes: Vec<(&'static str, Child)>,
}

impl<'a> Apart<'a> {
    fn new(cell: &'a Cell<'a>, number: usize) -> Self {
        let scratch = Scratch::new();
        let key = scratch.file("key", "an example of a key, 32 bytes long or more");
        let network = 100 + std::process::id() % 100;
        let member = |(n, id)| format!("{{ id = \"{id}\", address = \"127.{network}.{number}.{n}:7101\" }}");
        let members: Vec<_> = MEMBERS.iter().enumerate().map(|(n, id)| member((n + 1, id))).collect();
        let key = if cell.fabric == "shm" { String::new() } else { format!("key = \"file:{}\"\n", key.display()) };
        let text = format!(
            "cluster = \"apart\"\nfabric = \"{}\"\n{key}[limits]\nclients = 2\n[[group]]\nid = \"g1\"\nprocess = [ {} ]\n",
            cell.fabric,
            members.join(", ")
        );
        Apart { cell, config: scratch.file("cluster.toml", &text), scratch, nodes: Vec::new() }
    }

    fn start(&mut self, id: &'static str) {
        let [out, err] = ["out", "err"].map(|end| File::create(self.scratch.path(&format!("{id}.{end}"))).unwrap());
        let mut command = Command::new("unshare");
        command.args(&self.cell.flags).arg(stentor().get_program()).args(["node", "--id", id]);
        command.arg("--config").arg(&self.config).arg("--directory").arg(self.scratch.path("s"));
        self.nodes.push((id, command.stdout(out).stderr(err).spawn().expect("`unshare` starts")));
    }

    fn until(&self, id: &str, said: &str) {
        let since = Instant::now();
        loop {
            let text = fs::read_to_string(self.scratch.path(&format!("{id}.err"))).unwrap();
            if text.contains(said) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{}: `{said}` is not in what {id} says: {text}", self.cell.line);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&mut self, id: &str) {
        let at = self.nodes.iter().position(|(is, _)| *is == id).expect("it was started");
        let (_, mut node) = self.nodes.remove(at);
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// From the first stage to that of the cell.
    fn run(&mut self) {
        MEMBERS.iter().for_each(|id| self.start(id));
        MEMBERS.iter().for_each(|id| self.until(id, "ready"));
        let stage = self.cell.stage;
        if ["kill", "restart"].contains(&stage) {
            self.kill("g1.3");
            self.until("g1.1", if stage == "kill" { self.cell.expected } else { "lost g1.3" });
        }
        if stage == "restart" {
            self.start("g1.3");
            self.until("g1.3", self.cell.expected);
        }
        if stage == "client" {
            let mut cast = stentor();
            cast.args(["cast", "--to", "g1", "--timeout", "30", "--config"]).arg(&self.config);
            cast.arg("--directory").arg(self.scratch.path("s"));
            let line = File::open(self.scratch.file("line", "a line\n")).unwrap();
            let sent = ran(&cast.stdin(line).stdout(Stdio::piped()).output().unwrap());
            assert_eq!(sent.code, 0, "{}: {}", self.cell.line, sent.stderr);
            let said = format!("{}{}", sent.stdout, sent.stderr);
            assert!(said.contains(self.cell.expected), "{}: {said}", self.cell.line);
        }
    }
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        for (_, node) in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

#[test]
fn members_in_namespaces_of_their_own_meet_or_say_why_not() {
    let whole = std::env::var_os("STENTOR_MATRIX").is_some_and(|part| part == "whole");
    let mut barred = Vec::new();
    for (number, cell) in cells().enumerate().filter(|(_, cell)| whole || cell.short) {
        match cell.bites() {
            None => barred.push(cell.line),
            Some(bites) => {
                assert!(bites, "{}: its flags change nothing", cell.line);
                Apart::new(&cell, number + 1).run();
            }
        }
    }
    barred.iter().for_each(|line| println!("this machine does not allow: {line}"));
}
