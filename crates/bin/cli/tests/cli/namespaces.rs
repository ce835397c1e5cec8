//! Tests of members in separate namespaces: a matrix of flags × fabrics × stages, one cell per line, in
//! `namespaces.txt`.
//!
//! `cargo test` runs the short part. With `STENTOR_MATRIX=whole` all cells run (`cargo xtask nightly`). Each cell first
//! shows that its flags create another namespace, and fails on a machine that does not allow that. If the user is not
//! root, each cell runs inside an additional user namespace. The cells of libfabric need its library:
//! `cargo xtask test --only ofi` runs them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::support::{Scratch, ran, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(40);
const MATRIX: &str = include_str!("namespaces.txt");
const MEMBERS: [&str; 3] = ["g1.1", "g1.2", "g1.3"];

/// A cell: one line of the matrix.
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
        let mut flags: Vec<_> = flags.split_ascii_whitespace().collect();
        if !geteuid().is_root() && !flags.contains(&"-U") {
            flags.splice(0..0, ["-U", "-r"]);
        }
        Cell { line, flags, kind, fabric, stage, expected, short: part == "short" }
    })
}

impl Cell<'_> {
    /// Shows that a process with these flags is in another namespace than this one.
    fn check_is_effective(&self) -> Result<(), String> {
        let link = format!("/proc/self/ns/{}", self.kind);
        let own = fs::read_link(&link).map_err(|error| format!("{link}: {error}"))?;
        // A new PID namespace is recognised because its first process has pid 1. `/proc` may still show the namespace
        // of the parent.
        let is_pid = self.flags.contains(&"-p");
        let script = if is_pid { "echo $$" } else { "readlink \"$0\"" };
        let output = Command::new("unshare").args(&self.flags).args(["sh", "-c", script, &link]).output();
        let output = output.map_err(|error| format!("install util-linux: `unshare` does not start: {error}"))?;
        if !output.status.success() {
            return Err(format!(
                "this machine does not allow its flags: {}; run this as root, or allow user namespaces (sysctl \
                 user.max_user_namespaces, kernel.unprivileged_userns_clone)",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        let seen = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let other = if is_pid { seen == "1" } else { seen != own.to_string_lossy() };
        if other { Ok(()) } else { Err("its flags change nothing".to_owned()) }
    }
}

/// A cluster whose members each run in separate namespaces.
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
        let (fabric, provider) =
            cell.fabric.split_once(':').map_or((cell.fabric, String::new()), |(fabric, provider)| {
                (fabric, format!("[ofi]\nprovider = \"{provider}\"\n"))
            });
        let text = format!(
            "cluster = \"apart\"\nfabric = \"{fabric}\"\n{key}{provider}[limits]\nclients = 2\n[[group]]\nid = \"g1\"\nprocess = [ {} ]\n",
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
        self.until_one_of(&[id], said);
    }

    /// Waits until one of these members has logged `said`.
    fn until_one_of(&self, ids: &[&str], said: &str) {
        let since = Instant::now();
        let read = |id: &&str| fs::read_to_string(self.scratch.path(&format!("{id}.err"))).unwrap();
        loop {
            let texts: Vec<_> = ids.iter().map(read).collect();
            if texts.iter().any(|text| text.contains(said)) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{}: `{said}` is not in what {ids:?} say: {texts:?}", self.cell.line);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&mut self, id: &str) {
        let at = self.nodes.iter().position(|(is, _)| *is == id).expect("the node was started");
        let (_, mut node) = self.nodes.remove(at);
        node.kill().unwrap();
        node.wait().unwrap();
    }

    /// Starts the members, and does what the stage of the cell needs.
    fn run(&mut self) {
        MEMBERS.iter().for_each(|id| self.start(id));
        let stage = self.cell.stage;
        if stage == "refuse" {
            return self.until_one_of(&MEMBERS, self.cell.expected);
        }
        MEMBERS.iter().for_each(|id| self.until(id, if stage == "start" { self.cell.expected } else { "ready" }));
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

/// Runs the cells whose fabric is `wanted`. Reports all whose flags have no effect or are not allowed. The first cell
/// that fails otherwise ends the test.
fn play(wanted: fn(&str) -> bool) {
    let whole = std::env::var_os("STENTOR_MATRIX").is_some_and(|part| part == "whole");
    let mut wrong = Vec::new();
    for (number, cell) in cells().enumerate().filter(|(_, cell)| wanted(cell.fabric) && (whole || cell.short)) {
        match cell.check_is_effective() {
            Err(why) => wrong.push(format!("{}: {why}", cell.line)),
            Ok(()) => Apart::new(&cell, number + 1).run(),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn members_in_namespaces_of_their_own_meet_or_say_why_not() {
    play(|fabric| !fabric.starts_with("ofi:"));
}

mod ofi {
    use std::process::Command;

    use rustix::process::geteuid;

    /// Environment variable of the process that has its own `/dev/shm`.
    const INSIDE: &str = "STENTOR_NAMESPACES_INSIDE";
    const EMPTY: &str = "mount -t tmpfs none /dev/shm && exec \"$@\"";

    /// Runs in an empty `/dev/shm`. libfabric names its files there by pid, and files of killed processes stay.
    #[test]
    #[ignore = "needs libfabric: cargo xtask test --only ofi"]
    fn members_in_namespaces_of_their_own_meet_or_say_why_not() {
        if std::env::var_os(INSIDE).is_some() {
            return super::play(|fabric| fabric.starts_with("ofi:"));
        }
        let flags: &[&str] = if geteuid().is_root() { &["-m", "--propagation", "private"] } else { &["-r", "-m"] };
        let mut again = Command::new("unshare");
        again.args(flags).args(["sh", "-c", EMPTY, "sh"]).arg(std::env::current_exe().unwrap()).env(INSIDE, "1");
        let name = "namespaces::ofi::members_in_namespaces_of_their_own_meet_or_say_why_not";
        let output =
            again.args(["--exact", name, "--include-ignored", "--nocapture"]).output().expect("`unshare` starts");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{said}");
    }
}
