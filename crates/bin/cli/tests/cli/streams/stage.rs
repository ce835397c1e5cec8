//! Starts the command of a cell and brings it to the stage of the cell.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Cell, pipes};
use crate::support::{Scratch, run, signal, stentor};

/// Upper bound of the time to reach any stage.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time to wait at stages that the test cannot observe.
const A_WHILE: Duration = Duration::from_millis(800);

/// The command that a cell tests.
pub(super) struct Actor {
    pub(super) child: Child,
    /// File with the command's standard error, unless the cell redirects it elsewhere.
    err: PathBuf,
    /// The test's end of the command's standard input, or `None` if the test has no such end.
    input: Option<File>,
    output: Option<File>,
    _unread: Option<File>,
    /// Bytes that were read from a slow output.
    read: Vec<u8>,
}

impl Actor {
    pub(super) fn printed(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Reads the output, whose pipe was full at first, until its end.
    pub(super) fn read_slowly(&mut self) {
        let mut output = self.output.take().expect("a slow output");
        output.read_to_end(&mut self.read).unwrap();
    }

    /// Checks that a slow output is complete.
    pub(super) fn look_at_output(&self, cell: &Cell<'_>) -> Result<(), String> {
        if !cell.has("out-slow") {
            return Ok(());
        }
        let text = run(["man"]).stdout;
        assert!(text.len() > 32 << 10, "more than a pipe holds");
        let whole = self.read.ends_with(text.as_bytes());
        if whole { Ok(()) } else { Err(format!("{} bytes of {} came", self.read.len(), text.len())) }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The place where a cell runs, and the processes that it needs besides its command.
pub(super) struct Theatre {
    scratch: Scratch,
    others: Vec<Child>,
}

impl Drop for Theatre {
    fn drop(&mut self) {
        for child in &mut self.others {
            signal(child.id(), Signal::CONT);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Theatre {
    pub(super) fn new() -> Self {
        Theatre { scratch: Scratch::new(), others: Vec::new() }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path(name).to_str().unwrap().to_owned()
    }

    /// Starts the command of a cell and brings it to its stage.
    pub(super) fn bring(&mut self, cell: &Cell<'_>) -> Actor {
        match cell.command {
            "node" | "node-until-eof" => self.node(cell),
            "cast" => self.cast(cell),
            "channel-send" => self.sender(cell),
            "channel-receive" | "channel-print" => self.receiver(cell),
            "neb-run" => self.neb(cell),
            "switch" => self.switch(cell),
            _ => self.plain(cell),
        }
    }

    /// Checks that a failed transfer leaves no file.
    pub(super) fn check_no_file_is_left(&self, cell: &Cell<'_>) -> Result<(), String> {
        let names = fs::read_dir(self.scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("copy")).collect();
        let fine = cell.command != "channel-receive" || left.is_empty();
        if fine { Ok(()) } else { Err(format!("it leaves {left:?}")) }
    }

    fn start(&self, cell: &Cell<'_>, arguments: &[&str]) -> Actor {
        let mut command = match (cell.signals.contains(&"nohup"), cell.has("closed")) {
            (true, _) => through_shell("trap '' HUP; exec \"$@\""),
            (_, true) => through_shell("exec \"$@\" <&- >&- 2>&-"),
            _ => stentor(),
        };
        if !cell.signals.contains(&"nohup") {
            command = hearing_signals(&command);
        }
        let err = self.scratch.path("actor.err");
        let (stdin, input) = pipes::input(cell.has("in-nonblocking"));
        let full = |what, slow| {
            if cell.has(what) { Some(pipes::full(true)) } else { cell.has(slow).then(|| pipes::full(false)) }
        };
        let (full_out, full_err) = (full("out-full", "out-slow"), full("err-full", ""));
        let file = |path: PathBuf| Stdio::from(File::create(path).unwrap());
        let gone = |what| cell.has(what).then(pipes::gone);
        let taken = |full: Option<(Stdio, File)>, gone: Option<Stdio>, path: PathBuf| match full {
            Some((end, other)) => (end, Some(other)),
            None => (gone.unwrap_or_else(|| file(path)), None),
        };
        let (stdout, output) = taken(full_out, gone("out-gone"), self.scratch.path("actor.out"));
        let (stderr, unread) = taken(full_err, gone("err-gone"), err.clone());
        let child = command.args(arguments).stdin(stdin).stdout(stdout).stderr(stderr).spawn();
        let child = child.expect("the command starts");
        let actor = Actor { child, err, input: Some(input), output, _unread: unread, read: Vec::new() };
        if cell.signals.contains(&"nohup") {
            until("the command runs, and ignores SIGHUP", || ignores_hang_up(actor.child.id()));
        }
        actor
    }

    /// Returns `--config` and `--directory` of a new cluster with `members` members.
    fn cluster(&self, members: usize) -> Vec<String> {
        let config = self.path("cluster.toml");
        let replicas = members.to_string();
        let made = run(["config", "init", "--groups", "1", "--replicas", &replicas, "--output", &config]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        ["--config", &config, "--directory", &self.path("run")].map(str::to_owned).into()
    }

    fn node(&mut self, cell: &Cell<'_>) -> Actor {
        let place = self.cluster(if cell.stage == "alone" { 3 } else { 1 });
        let mut arguments = vec!["node", "--id", "g1.1"];
        arguments.extend(place.iter().map(String::as_str));
        if cell.command == "node-until-eof" {
            arguments.push("--until-eof");
        }
        let mut actor = self.start(cell, &arguments);
        // The command for operators shows the state of the node even if standard error is redirected.
        until("the node answers", || self.asked(&place, if cell.stage == "alone" { "\"joins\"" } else { "\"leads\"" }));
        // The node leads a moment before it logs that it is ready.
        until("it says so", || !cell.said.ends_with("ready") || actor.printed().contains(&cell.said));
        if cell.stage == "delivering" {
            self.load(&place);
            std::thread::sleep(A_WHILE);
        }
        self.end_input(cell, &mut actor);
        actor
    }

    fn asked(&self, place: &[String], part: &str) -> bool {
        let show = ["leader", "show", "--json"].map(str::to_owned);
        run(show.iter().chain(place)).stdout.contains(part)
    }

    /// Starts a client that sends as fast as it can.
    fn load(&mut self, place: &[String]) {
        let text = self.scratch.file("load", &format!("{}\n", "x".repeat(4000)).repeat(2000));
        let mut client = stentor();
        client.args(["cast", "--to", "g1", "--timeout", "60"]).args(place).stdin(File::open(text).unwrap());
        self.others.push(client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    fn cast(&mut self, cell: &Cell<'_>) -> Actor {
        let place = self.cluster(1);
        if cell.stage != "joining" {
            let mut node = stentor();
            node.args(["node", "--id", "g1.1"]).args(&place).stdin(Stdio::null());
            let [out, err] = ["node.out", "node.err"].map(|name| File::create(self.scratch.path(name)).unwrap());
            self.others.push(node.stdout(out).stderr(err).spawn().unwrap());
        }
        let mut arguments = vec!["cast", "--to", "g1", "--timeout", "120"];
        arguments.extend(place.iter().map(String::as_str));
        let mut actor = self.start(cell, &arguments);
        if cell.stage == "joining" {
            std::thread::sleep(A_WHILE);
            return actor;
        }
        if !cell.has("closed") {
            writeln!(actor.input.as_mut().unwrap(), "one").unwrap();
            let delivered = || fs::read_to_string(self.scratch.path("node.out")).unwrap().contains("\"one\"");
            until("a line is delivered", delivered);
        }
        if cell.stage == "waiting" {
            signal(self.others[0].id(), Signal::STOP);
            std::thread::sleep(A_WHILE / 4);
            if !cell.has("closed") {
                writeln!(actor.input.as_mut().unwrap(), "two").unwrap();
            }
            std::thread::sleep(A_WHILE);
        }
        self.end_input(cell, &mut actor);
        actor
    }

    fn end_input(&self, cell: &Cell<'_>, actor: &mut Actor) {
        if cell.has("in-ends") {
            actor.input = None;
        }
    }

    fn channel<'a>(&self, directory: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["channel", "cat", "place", "--directory", directory, "-w", "60"], more].concat()
    }

    fn sender(&mut self, cell: &Cell<'_>) -> Actor {
        let directory = self.path("meet");
        let copy = self.scratch.path("received");
        if cell.stage == "moving" {
            let mut listener = stentor();
            listener.args(self.channel(&directory, &["--listen"])).stdin(Stdio::null()).stderr(Stdio::null());
            self.others.push(listener.stdout(File::create(&copy).unwrap()).spawn().unwrap());
        }
        let mut actor = self.start(cell, &self.channel(&directory, &[]));
        if cell.stage == "meeting" {
            std::thread::sleep(A_WHILE);
            return actor;
        }
        writeln!(actor.input.as_mut().unwrap(), "some").unwrap();
        until("something arrives", || fs::metadata(&copy).unwrap().len() > 0);
        self.end_input(cell, &mut actor);
        actor
    }

    fn receiver(&mut self, cell: &Cell<'_>) -> Actor {
        let (directory, copy) = (self.path("meet"), self.path("copy"));
        let to: &[&str] = if cell.command == "channel-print" { &[] } else { &["--output", &copy] };
        let actor = self.start(cell, &self.channel(&directory, &[&["--listen"], to].concat()));
        if cell.stage == "meeting" {
            std::thread::sleep(A_WHILE);
            return actor;
        }
        let text = self.scratch.file("text", &"x".repeat(8 << 20));
        let mut sender = stentor();
        let (stdin, mut input) = pipes::input(false);
        sender.args(self.channel(&directory, &[])).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        self.others.push(sender.spawn().unwrap());
        // The input stays open, so that the transfer does not end.
        std::thread::spawn(move || {
            let _ = input.write_all(&fs::read(text).unwrap());
            std::thread::sleep(PATIENCE);
        });
        std::thread::sleep(2 * A_WHILE);
        actor
    }

    fn neb(&mut self, cell: &Cell<'_>) -> Actor {
        let process = |n| format!("{{ id = \"p{n}\", address = \"127.0.0.1:710{n}\" }}");
        let processes = (1..=4).map(process).collect::<Vec<_>>().join(", ");
        let text = format!(
            "cluster = \"test\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\nprocess = [ {processes} ]\n[neb]\nfault_model = \
             \"lying-sender\"\n"
        );
        let config = self.scratch.file("neb.toml", &text);
        let directory = self.path("run");
        let arguments =
            ["neb", "run", "--id", "p1", "--config", config.to_str().unwrap(), "--directory", directory.as_str()];
        let actor = self.start(cell, &arguments);
        until("it has a socket", || fs::read_dir(self.scratch.path("run/test.neb")).is_ok_and(|all| all.count() > 0));
        std::thread::sleep(A_WHILE);
        actor
    }

    fn switch(&mut self, cell: &Cell<'_>) -> Actor {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let host = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = |last| Ipv4Addr::new(127, 213, host, last).to_string();
        let (config, key) = (self.path("switch.toml"), self.scratch.file("cluster.key", &"7".repeat(64)));
        let made = run(["switch", "init", "--forward", &at(1), "--backward", &at(2), "--output", &config]);
        assert_eq!(made.code, 0, "{}{}", made.stderr, key.display());
        let directory = self.path("run");
        let actor = self.start(cell, &["switch", "--config", &config, "--directory", &directory]);
        let show = ["switch", "show", "--config", &config, "--directory", &directory];
        until("the switch answers", || run(show).code == 0);
        actor
    }

    /// Starts a command that needs no other process.
    fn plain(&mut self, cell: &Cell<'_>) -> Actor {
        let histories = self.path("histories");
        // The text has more lines than are multicast before the signal.
        let text = if cell.command == "demo" { "x\n".repeat(1_000_000) } else { String::new() };
        let text = self.scratch.file("text", &text);
        let text = text.to_str().unwrap();
        let arguments: &[&str] = match cell.command {
            "sim" => &["sim", "multicast", "--seeds", "0..100000000"],
            "man" => &["man"],
            "doctor" => &["doctor"],
            "nonsense" => &["conjure"],
            "demo" => &["demo", "--groups", "1", "--no-kill", "--input", text, "--keep", &histories],
            "bench-multicast" => &["bench", "multicast", "--iterations", "1000000"],
            "bench-failover" => &["bench", "failover", "--rounds", "1000"],
            "chaos" => &["chaos", "--minutes", "5"],
            other => panic!("no command {other}"),
        };
        let actor = self.start(cell, arguments);
        if cell.stage == "running" {
            if ["demo", "chaos", "bench-failover"].contains(&cell.command) {
                until("it has processes", || has_children(actor.child.id()));
            }
            if cell.command == "chaos" {
                until("its faults begin", || actor.printed().contains("the faults begin"));
            }
            std::thread::sleep(2 * A_WHILE);
        } else if !cell.signals.is_empty() {
            std::thread::sleep(A_WHILE);
        }
        actor
    }
}

/// Returns the command, started by a shell that runs a script first.
fn through_shell(script: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]);
    followed_by(shell, &stentor())
}

/// Returns the command with the default action for all signals. Tests that run under `nohup` would otherwise pass on an
/// ignored signal.
fn hearing_signals(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal");
    followed_by(env, command)
}

/// Returns a command that ends by executing another one.
fn followed_by(mut first: Command, then: &Command) -> Command {
    first.arg(then.get_program()).args(then.get_args());
    for (name, value) in then.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    first
}

/// Returns whether the shell has executed the command, and the command still ignores SIGHUP.
fn ignores_hang_up(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    program.ends_with("stentor") && u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1)
}

/// Returns whether a process has child processes.
fn has_children(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children.any(|children| !children.trim().is_empty())
}

fn until(what: &str, done: impl Fn() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
