//! Starts, kills and watches the processes of one run.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::Draw;
use crate::support::{Ran, Scratch, run, stentor, violations};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(40);
/// Pause between two lines of a client.
const PACE: Duration = Duration::from_millis(10);
/// Pause between two polls of a condition.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a step of a run. A failed run returns an error instead of a panic, so that the other runs follow.
pub(super) type Outcome = Result<(), String>;

/// A client that multicasts lines until `end` is set.
struct Client {
    child: Child,
    to: String,
    name: String,
    end: Arc<AtomicBool>,
    lines: Option<JoinHandle<()>>,
}

/// A cluster of groups of three members, and its clients.
pub(super) struct Scene {
    scratch: Scratch,
    config: PathBuf,
    pub(super) groups: usize,
    /// The latest life of each member: its name, the number of that life, and its process.
    nodes: Vec<(String, u32, Child)>,
    clients: Vec<Client>,
    casts: Cell<u32>,
    /// `true` if a client was killed. Then it is not known which of its last messages must be delivered.
    killed_client: bool,
}

impl Scene {
    /// Starts all members.
    pub(super) fn begin(draw: &mut Draw, groups: usize, more: &str) -> Result<Self, String> {
        let scratch = Scratch::new();
        let (name, network) = (format!("loss-{}-{}", std::process::id(), draw.seed), draw.network());
        let (fabric, key) = if draw.is_roce() {
            let key = scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
            ("roce", format!("key = \"file:{}\"\n", key.display()))
        } else {
            ("shm", String::new())
        };
        let mut text = format!(
            "cluster = \"{name}\"\nfabric = \"{fabric}\"\n{key}{more}[election]\nkind = \"heartbeat\"\ntimeout_min_ms = 300\n\
             timeout_max_ms = 600\n[limits]\nmessage_bytes = 256\nwindow = 16\nclients = 6\nring_kib = 16\nbody_ring_kib = 16\n"
        );
        for group in 1..=groups {
            let member = |n| format!("{{ id = \"g{group}.{n}\", address = \"{network}.{group}{n}:7101\" }}");
            let members = (1..=3).map(member).collect::<Vec<_>>().join(", ");
            text += &format!("[[group]]\nid = \"g{group}\"\nprocess = [ {members} ]\n");
        }
        let config = scratch.file("cluster.toml", &text);
        let mut scene = Scene {
            scratch,
            config,
            groups,
            nodes: Vec::new(),
            clients: Vec::new(),
            casts: Cell::new(0),
            killed_client: false,
        };
        scene.all().iter().for_each(|name| scene.start(name));
        Ok(scene)
    }

    pub(super) fn all(&self) -> Vec<String> {
        (1..=self.groups).flat_map(members).collect()
    }

    fn meeting(&self) -> [String; 4] {
        let (config, directory) = (self.config.display().to_string(), self.scratch.path("run").display().to_string());
        ["--config".to_owned(), config, "--directory".to_owned(), directory]
    }

    pub(super) fn start(&mut self, name: &str) {
        let life = self.nodes.iter().find(|(of, ..)| of == name).map_or(1, |(_, life, _)| life + 1);
        let file = |end: &str| self.scratch.path(&format!("{name}-{life}.{end}"));
        let create = |end: &str| File::create(file(end)).expect("a writable directory");
        let mut command = stentor();
        command.args(["node", "--id", name]).args(self.meeting()).arg("--history").arg(file("jsonl"));
        command.stdin(Stdio::null()).stdout(create("out")).stderr(create("err"));
        let child = command.spawn().expect("the command starts");
        self.nodes.retain(|(of, ..)| of != name);
        self.nodes.push((name.to_owned(), life, child));
    }

    pub(super) fn signal(&self, name: &str, signal: Signal) {
        let (.., child) = self.nodes.iter().find(|(of, ..)| of == name).expect("the node was started");
        kill_process(Pid::from_child(child), signal).expect("the node's process runs");
    }

    /// Kills these members at once, and then waits for them.
    pub(super) fn kill(&mut self, names: &[String]) {
        for signals in [true, false] {
            for (_, _, child) in self.nodes.iter_mut().filter(|(of, ..)| names.contains(of)) {
                let _ = if signals { child.kill().is_ok() } else { child.wait().is_ok() };
            }
        }
    }

    pub(super) fn has_ended(&mut self, name: &str) -> bool {
        let (.., child) = self.nodes.iter_mut().find(|(of, ..)| of == name).expect("the node was started");
        child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Returns the output or the log of the latest life of a member.
    pub(super) fn said(&self, name: &str, end: &str) -> String {
        let life = self.nodes.iter().find(|(of, ..)| of == name).map_or(1, |(_, life, _)| *life);
        fs::read_to_string(self.scratch.path(&format!("{name}-{life}.{end}"))).unwrap_or_default()
    }

    /// Starts a client that multicasts to these groups.
    pub(super) fn client(&mut self, to: &str) {
        let name = format!("client-{}", self.clients.len());
        let create = |end: &str| {
            File::create(self.scratch.path(&format!("{name}.{end}"))).expect("the output file can be created")
        };
        let history = self.scratch.path(&format!("{name}.jsonl"));
        let mut command = stentor();
        command.args(["cast", "--to", to, "--timeout", "30"]).args(self.meeting()).arg("--history").arg(history);
        command.stdin(Stdio::piped()).stdout(create("out")).stderr(create("err"));
        let mut child = command.spawn().expect("the command starts");
        let (mut input, end) = (child.stdin.take().expect("a pipe"), Arc::new(AtomicBool::new(false)));
        let ends = Arc::clone(&end);
        let lines = std::thread::spawn(move || {
            let mut number = 0;
            while !ends.load(Ordering::Relaxed) && writeln!(input, "line {number}").is_ok() {
                number += 1;
                std::thread::sleep(PACE);
            }
        });
        self.clients.push(Client { child, to: to.to_owned(), name, end, lines: Some(lines) });
    }

    /// Kills all clients.
    pub(super) fn kill_clients(&mut self) {
        self.killed_client |= !self.clients.is_empty();
        self.clients.iter_mut().for_each(|client| client.finish(true));
        self.clients.clear();
    }

    /// Ends the input of all clients. They end without an error, unless a group that they multicast to began anew.
    fn end_clients(&mut self, anew: &[usize]) -> Outcome {
        self.clients.iter().for_each(|client| client.end.store(true, Ordering::Relaxed));
        for mut client in std::mem::take(&mut self.clients) {
            let since = Instant::now();
            let status = loop {
                match client.child.try_wait() {
                    Ok(Some(status)) => break status.code(),
                    _ if since.elapsed() > PATIENCE => break None,
                    _ => std::thread::sleep(LOOK),
                }
            };
            let said = fs::read_to_string(self.scratch.path(&format!("{}.err", client.name))).unwrap_or_default();
            let lost = anew.iter().any(|group| client.to.split(',').any(|to| to == format!("g{group}")));
            let told = lost && status == Some(1) && said.contains(" began anew, from another state");
            if status != Some(0) && !told {
                client.finish(true);
                return Err(format!("client to {} ended with {status:?}: {said}", client.to));
            }
            client.finish(false);
        }
        Ok(())
    }

    /// Runs a command on this cluster.
    pub(super) fn command(&self, words: &[&str]) -> Ran {
        run(words.iter().map(|word| (*word).to_owned()).chain(self.meeting()))
    }

    /// Returns the document of `leader show`.
    pub(super) fn show(&self) -> Value {
        let shown = self.command(&["leader", "show", "--json"]);
        let document =
            serde_json::from_str(&shown.stdout).unwrap_or_else(|_| panic!("{}{}", shown.stdout, shown.stderr));
        let errors = violations("leader-show", &document);
        assert!(errors.is_empty(), "{errors:?}\n{document:#}");
        document
    }

    /// Returns the state of all members and the end of their logs, for an error message.
    fn state(&self) -> String {
        let shown = self.command(&["leader", "show"]).stdout;
        let last = |name: &String| self.said(name, "err").lines().rev().take(4).map(str::to_owned).collect::<Vec<_>>();
        let said: Vec<_> = self.all().iter().flat_map(last).collect();
        format!("{shown}{}", said.join("\n"))
    }

    /// Waits for a condition. Returns the time of the wait.
    pub(super) fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) -> Result<Duration, String> {
        let since = Instant::now();
        while !is(self) {
            if since.elapsed() > PATIENCE {
                return Err(format!("not {what}\n{}", self.state()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(since.elapsed())
    }

    /// Waits until each of these members has logged a line that contains all `parts`.
    pub(super) fn until_said(&mut self, names: &[String], parts: &[&str]) -> Outcome {
        let has = |text: &str| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        self.until(&format!("said by {names:?}: {parts:?}"), |scene| {
            names.iter().all(|name| has(&scene.said(name, "err")))
        })?;
        Ok(())
    }

    /// Waits until all groups work.
    pub(super) fn until_works(&mut self) -> Result<Duration, String> {
        self.until("working", |scene| scene.show()["ok"] == true)
    }

    /// Resets a group as an operator does. Without `--ends` the command changes nothing and lists the choices. Returns
    /// how long the command took that resets the group.
    pub(super) fn reset(&self, group: usize, empty: bool) -> Result<Duration, String> {
        let name = format!("g{group}");
        let told = self.command(&["group", "reset", "--group", &name]);
        let marker = if empty { " --empty`" } else { " --from " };
        let choice = told.stderr.split("`--ends ").skip(1).find(|choice| choice.contains(marker));
        let Some((how, 2)) = choice.map(|choice| (choice.split('`').next().unwrap_or_default(), told.code)) else {
            return Err(format!("no way to reset {name} with{marker}: {}", told.stderr));
        };
        let words: Vec<_> = ["group", "reset", "--group", &name, "--timeout", "30", "--ends"]
            .into_iter()
            .chain(how.split(' '))
            .collect();
        let since = Instant::now();
        let done = self.command(&words);
        if done.code == 0 { Ok(since.elapsed()) } else { Err(format!("{words:?}: {}{}", done.stderr, self.state())) }
    }

    /// Ends the clients, and waits until all groups work, all messages are settled and none is undelivered. Then multicasts
    /// a line to all groups with a new client, waits until all members have delivered the line, and ends the members.
    /// `anew` lists the groups that began anew. Returns the time until all messages were settled.
    pub(super) fn conclude(&mut self, anew: &[usize]) -> Result<Duration, String> {
        let since = Instant::now();
        self.end_clients(anew)?;
        self.until("settled", |scene| {
            let shown = scene.show();
            let standings =
                shown["members"].as_array().expect("the document has members").iter().map(|member| &member["standing"]);
            let rests = |standing: &Value| {
                let nothing = standing["unsettled"].as_array().is_some_and(Vec::is_empty);
                standing["joining"] == false && standing["undelivered"] == 0 && nothing
            };
            shown["ok"] == true && standings.into_iter().all(rests)
        })?;
        let settled = since.elapsed();
        let groups = (1..=self.groups).map(|group| format!("g{group}")).collect::<Vec<_>>().join(",");
        self.cast(&groups, "the last line")?;
        let all = self.all();
        self.until("delivered everywhere", |scene| {
            all.iter().all(|name| scene.said(name, "out").contains("the last line"))
        })?;
        all.iter().for_each(|name| self.signal(name, Signal::TERM));
        self.until("ended", |scene| all.iter().all(|name| scene.has_ended(name)))?;
        Ok(settled)
    }

    fn cast(&self, to: &str, line: &str) -> Outcome {
        let number = self.casts.replace(self.casts.get() + 1);
        let history = self.scratch.path(&format!("cast-{number}.jsonl"));
        let mut command = stentor();
        command.args(["cast", "--to", to, "--timeout", "30"]).args(self.meeting()).arg("--history").arg(history);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let _ = writeln!(child.stdin.take().expect("a pipe"), "{line}");
        let output = child.wait_with_output().expect("the command ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("cast to {to}: {said}")) }
    }

    /// Judges the histories of all lives. If `several`, they belong to several runs, and the check must find that.
    pub(super) fn judge(&self, several: bool) -> Outcome {
        let folder = self.config.parent().expect("a folder");
        let files = fs::read_dir(folder).expect("the folder can be read").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<_> = files
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .map(|path| path.display().to_string())
            .collect();
        files.sort();
        let how = if self.killed_client { &["check", "--json"][..] } else { &["check", "--json", "--complete"] };
        let judged = run(how.iter().map(|word| (*word).to_owned()).chain(files));
        let expected = if several { 3 } else { 0 };
        if judged.code == expected && (!several || judged.stdout.contains("runs: ")) {
            return Ok(());
        }
        Err(format!("check: exit code {}, not {expected}: {}{}", judged.code, judged.stdout, judged.stderr))
    }
}

/// Returns the members of a group.
pub(super) fn members(group: usize) -> Vec<String> {
    (1..=3).map(|n| format!("g{group}.{n}")).collect()
}

impl Client {
    fn finish(&mut self, kill: bool) {
        self.end.store(true, Ordering::Relaxed);
        if kill {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        self.lines.take().into_iter().for_each(|lines| drop(lines.join()));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.clients.iter_mut().for_each(|client| client.finish(true));
        for (_, _, child) in &mut self.nodes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
