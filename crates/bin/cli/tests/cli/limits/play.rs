//! Runs the command of a cell and the other processes that it needs, and checks that no acknowledged data is lost.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::scene::Scene;
use crate::support::signal;

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(180);
/// Number of lines that are multicast. Their histories are longer than the disks and the limits of file sizes allow.
const LINES: usize = 6000;

/// The way a command ended, and its standard error.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) said: String,
}

/// A process whose output is read by threads. The output goes to a file only in cells that test that, because files may
/// be limited.
struct Actor {
    child: Child,
    out: Arc<Mutex<Vec<u8>>>,
    err: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

fn drain(from: Option<impl Read + Send + 'static>) -> (Arc<Mutex<Vec<u8>>>, Option<JoinHandle<()>>) {
    let read = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&read);
    let reader = from.map(|mut from| {
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(count) = from.read(&mut bytes)
                && count > 0
            {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        })
    });
    (read, reader)
}

impl Actor {
    fn start(command: &mut Command) -> Self {
        Self::with_output(command, Stdio::piped())
    }

    fn with_output(command: &mut Command, output: Stdio) -> Self {
        let mut child = command.stdout(output).stderr(Stdio::piped()).spawn().expect("`bash` starts");
        let (out, first) = drain(child.stdout.take());
        let (err, second) = drain(child.stderr.take());
        Actor { child, out, err, readers: first.into_iter().chain(second).collect() }
    }

    fn out(&self) -> String {
        String::from_utf8_lossy(&self.out.lock().unwrap()).into_owned()
    }

    fn err(&self) -> String {
        String::from_utf8_lossy(&self.err.lock().unwrap()).into_owned()
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until `done` holds or the process has ended. Returns whether `done` holds.
    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<bool, String> {
        let since = Instant::now();
        loop {
            if done(self) {
                return Ok(true);
            }
            if self.is_over() {
                return Ok(done(self));
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("not after {PATIENCE:?}: {what}; {}", self.err()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn tell_to_stop(&mut self) {
        if !self.is_over() {
            signal(self.child.id(), Signal::TERM);
        }
    }

    fn end(mut self) -> Result<Ended, String> {
        self.until("it ends", |_| false)?;
        let status = self.child.wait().unwrap();
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        Ok(Ended { code: status.code(), signal: status.signal(), said: self.err() })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command. Returns an error if the command lost data that it had acknowledged. The caller compares the exit
/// code with the matrix.
pub(super) fn play(command: &str, scene: &Scene) -> Result<Ended, String> {
    match command {
        "node" => node(scene, "shm", &["--history", &scene.in_place("node.jsonl")], false),
        "node-stdout" => node(scene, "shm", &[], true),
        "node-until-eof" => node(scene, "shm", &["--until-eof"], false),
        "node-roce" => node(scene, "roce", &["--pcap", &scene.in_place("run.pcap")], false),
        "cast" => cast(scene),
        "neb-run" => neb(scene),
        "channel-receive" => channel(scene, true),
        "channel-send" => channel(scene, false),
        "leader-show" | "stop" => asking(scene, command),
        "config-init" => config_init(scene),
        "check-stdout" => check(scene),
        "help-stdout" => printing(scene, &["--help"]),
        "sim-stdout" => printing(scene, &["sim", "multicast", "--seeds", "0..2", "--json"]),
        "sim-trace" => {
            let trace = scene.in_place("trace.json");
            let ended = alone(scene, &["sim", "multicast", "--seed", "3", "--trace", &trace])?;
            whole_or_failed(&ended, Path::new(&trace), |text| serde_json::from_str::<serde_json::Value>(text).is_ok())?;
            Ok(ended)
        }
        "sim" => alone(scene, &["sim", "multicast", "--seeds", "0..3"]),
        "demo" => {
            let keep = scene.in_place("kept");
            alone(scene, &["demo", "--groups", "1", "--no-kill", "--messages-limit", "2000", "--keep", &keep])
        }
        "demo-neb" => alone(scene, &["demo", "--neb", "--messages-limit", "20"]),
        "chaos" => {
            let keep = scene.in_place("kept");
            let run = ["chaos", "--minutes", "0.1", "--groups", "1", "--directory", &keep];
            alone(scene, &run)
        }
        "bench" => alone(scene, &["bench", "channel", "-n", "100", "--rounds", "1"]),
        "bench-failover" => alone(scene, &["bench", "failover", "--rounds", "1", "--sim-runs", "1"]),
        "doctor" => telling(scene, &["doctor"]),
        "man" => alone(scene, &["man", "--output", scene.place().to_str().unwrap()]),
        "neb-key" => alone(scene, &["neb", "key", &scene.in_place("secret")]),
        "switch-init" => alone(scene, &["switch", "init", "--output", &scene.in_place("switch.toml")]),
        other => panic!("no command {other}"),
    }
}

fn alone(scene: &Scene, arguments: &[&str]) -> Result<Ended, String> {
    Actor::start(scene.limited(arguments).stdin(Stdio::null())).end()
}

/// Runs a command that prints its findings and their remedies on standard output.
fn telling(scene: &Scene, arguments: &[&str]) -> Result<Ended, String> {
    let told = Actor::start(scene.limited(arguments).stdin(Stdio::null()));
    let out = Arc::clone(&told.out);
    let ended = told.end()?;
    let out = String::from_utf8_lossy(&out.lock().unwrap()).into_owned();
    Ok(Ended { said: ended.said + &out, ..ended })
}

/// Requires that a command that succeeded has left a complete file.
fn whole_or_failed(ended: &Ended, file: &Path, whole: impl Fn(&str) -> bool) -> Result<(), String> {
    let fine = ended.code != Some(0) || fs::read_to_string(file).is_ok_and(|text| whole(&text));
    if fine { Ok(()) } else { Err(format!("success, and {} is not whole", file.display())) }
}

/// Runs a command whose standard output is a file under the limit.
fn printing(scene: &Scene, arguments: &[&str]) -> Result<Ended, String> {
    let path = scene.in_place("out");
    let output = match File::create(&path) {
        Ok(file) => Stdio::from(file),
        Err(error) => return Err(format!("no output: {error}")),
    };
    let ended = Actor::with_output(scene.limited(arguments).stdin(Stdio::null()), output).end()?;
    let text = Command::output(scene.free(arguments).stdin(Stdio::null())).unwrap().stdout;
    whole_or_failed(&ended, Path::new(&path), |printed| {
        printed.lines().count() == text.split(|b| *b == b'\n').count() - 1
    })?;
    Ok(ended)
}

fn cluster(scene: &Scene, fabric: &str) -> String {
    let last = std::process::id() % 200 + 10;
    let host = scene.user() % 250;
    let key = if fabric == "shm" {
        String::new()
    } else {
        format!("key = \"file:{}\"\n", scene.file("key", "an example of a key, 32 bytes long or more"))
    };
    scene.file(
        "cluster.toml",
        &format!(
            "cluster = \"limits\"\nfabric = \"{fabric}\"\n{key}[limits]\nclients = 2\nmessage_bytes = 1024\nwindow = 64\n\
             body_ring_kib = 64\n[[group]]\nid = \"g1\"\nprocess = [ {{ id = \"g1.1\", address = \"127.{last}.{host}.1:7101\" }} ]\n"
        ),
    )
}

fn place<'a>(config: &'a str, run: &'a str) -> [&'a str; 4] {
    ["--config", config, "--directory", run]
}

/// Returns the lines that are multicast, and a file that contains them.
fn lines(scene: &Scene) -> (Vec<String>, String) {
    let lines: Vec<_> = (0..LINES).map(|n| format!("line {n} {}", "x".repeat(60))).collect();
    let file = scene.file("lines", &(lines.join("\n") + "\n"));
    (lines, file)
}

fn casting<'a>(scene: &Scene, place: [&'a str; 4], history: &'a str, limited: bool) -> Actor {
    let arguments = [&["cast", "--to", "g1", "--timeout", "5", "--history", history][..], &place].concat();
    let mut command = if limited { scene.limited(&arguments) } else { scene.free(&arguments) };
    Actor::start(command.stdin(File::open(lines(scene).1).unwrap()))
}

/// Runs a node under the limit, with an unlimited client.
fn node(scene: &Scene, fabric: &str, more: &[&str], to_place: bool) -> Result<Ended, String> {
    let (config, run) = (cluster(scene, fabric), scene.home("run"));
    let arguments = [&["node", "--id", "g1.1"][..], &place(&config, &run), more].concat();
    let output = if to_place { Stdio::from(File::create(scene.in_place("out")).unwrap()) } else { Stdio::piped() };
    let mut node = Actor::with_output(scene.limited(&arguments).stdin(Stdio::piped()), output);
    if !node.until("the node is ready", |node| node.err().contains(" ready"))? {
        return node.end();
    }
    let history = scene.home("c0.jsonl");
    let cast = casting(scene, place(&config, &run), &history, false).end()?;
    // An idle node prints all that it has delivered.
    std::thread::sleep(Duration::from_millis(200));
    node.tell_to_stop();
    let printed = if to_place { None } else { Some(Arc::clone(&node.out)) };
    let ended = node.end()?;
    let printed = match printed {
        Some(out) => String::from_utf8_lossy(&out.lock().unwrap()).into_owned(),
        None => fs::read_to_string(scene.in_place("out")).unwrap(),
    };
    // A node that fails reports the error, and its output ends there.
    if cast.code == Some(0) && (ended.code == Some(0) || !to_place) {
        let strings: HashSet<_> = printed.split('"').collect();
        for line in lines(scene).0 {
            if !strings.contains(line.as_str()) {
                return Err(format!("`{line}` was acknowledged and is not printed; {}", ended.said));
            }
        }
    }
    if let Ok(capture) = fs::read(scene.in_place("run.pcap")) {
        whole_packets(&capture)?;
    }
    let own = scene.in_place("node.jsonl");
    if Path::new(&own).exists() {
        let files = [own.as_str(), &history];
        judged(scene, &files.into_iter().filter(|file| Path::new(file).exists()).collect::<Vec<_>>())?;
    } else if more.contains(&"--history") && ended.code == Some(0) {
        return Err("success without a history".to_owned());
    }
    Ok(ended)
}

/// Requires that a capture ends with a complete packet.
fn whole_packets(capture: &[u8]) -> Result<(), String> {
    let mut rest = capture.get(24..).unwrap_or_default();
    while !rest.is_empty() {
        let bytes = rest.get(8..12).map(|word| u32::from_le_bytes(word.try_into().unwrap()) as usize);
        let Some(after) = bytes.and_then(|bytes| rest.get(16 + bytes..)) else {
            return Err(format!("the capture ends with {} bytes of a packet", rest.len()));
        };
        rest = after;
    }
    Ok(())
}

/// Requires that `check` reads the histories, and reports neither a violation nor bad usage because they end early.
fn judged(scene: &Scene, files: &[&str]) -> Result<(), String> {
    for complete in [&["check"][..], &["check", "--complete"]] {
        let arguments = [complete, files].concat();
        let output = scene.free(&arguments).stdin(Stdio::null()).output().unwrap();
        if ![Some(0), Some(3)].contains(&output.status.code()) {
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            return Err(format!("`{}` ends with {:?}: {said}", complete.join(" "), output.status.code()));
        }
    }
    // Each line is complete, as other readers of the format expect.
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        if let Some(line) = text.lines().find(|line| serde_json::from_str::<serde_json::Value>(line).is_err()) {
            return Err(format!("{file} has a line that is cut off: {line}"));
        }
    }
    Ok(())
}

/// Starts an unlimited node with this configuration, and waits until it is ready.
fn free_node(scene: &Scene, place: [&str; 4], history: &str) -> Result<Actor, String> {
    let arguments = [&["node", "--id", "g1.1", "--history", history][..], &place].concat();
    let mut node = Actor::start(scene.free(&arguments).stdin(Stdio::null()));
    if node.until("the node is ready", |node| node.err().contains(" ready"))? {
        Ok(node)
    } else {
        Err(format!("the free node ends; {}", node.err()))
    }
}

/// Runs a client under the limit, with an unlimited node.
fn cast(scene: &Scene) -> Result<Ended, String> {
    let (config, run) = (cluster(scene, "shm"), scene.home("run"));
    let (own, history) = (scene.home("node.jsonl"), scene.in_place("c0.jsonl"));
    let mut node = free_node(scene, place(&config, &run), &own)?;
    let ended = casting(scene, place(&config, &run), &history, true).end()?;
    std::thread::sleep(Duration::from_millis(200));
    node.tell_to_stop();
    let printed = Arc::clone(&node.out);
    node.end()?;
    let printed = String::from_utf8_lossy(&printed.lock().unwrap()).into_owned();
    if ended.code == Some(0) && printed.lines().count() != LINES {
        return Err(format!("success, and {} lines were delivered", printed.lines().count()));
    }
    if !Path::new(&history).exists() {
        return if printed.is_empty() { Ok(ended) } else { Err("lines were sent that no history has".to_owned()) };
    }
    judged(scene, &[&own, &history])?;
    let recorded = fs::read_to_string(&history).unwrap().lines().filter(|line| line.contains("\"multicast\"")).count();
    if recorded < printed.lines().count() {
        return Err(format!("{recorded} lines are recorded, and {} were delivered", printed.lines().count()));
    }
    Ok(ended)
}

/// Runs one process of the broadcast under the limit, and three that are unlimited.
fn neb(scene: &Scene) -> Result<Ended, String> {
    let members: Vec<_> = (1..=4).map(|n| format!("{{ id = \"p{n}\", address = \"127.0.0.1:710{n}\" }}")).collect();
    let config = scene.file(
        "cluster.toml",
        &format!(
            "cluster = \"limits\"\nfabric = \"shm\"\n[[group]]\nid = \"g1\"\nprocess = [ {} ]\n[neb]\nfault_model = \
             \"lying-sender\"\npayload_bytes = 128\n",
            members.join(", ")
        ),
    );
    let (run, (lines, input)) = (scene.home("run"), lines(scene));
    let histories: Vec<_> =
        (1..=4).map(|n| if n == 1 { scene.in_place("p1.jsonl") } else { scene.home(&format!("p{n}.jsonl")) }).collect();
    let start = |n: usize| {
        let id = format!("p{n}");
        let arguments =
            [&["neb", "run", "--id", &id, "--history", &histories[n - 1]][..], &place(&config, &run)].concat();
        let mut command = if n == 1 { scene.limited(&arguments) } else { scene.free(&arguments) };
        let stdin = if n == 1 { Stdio::from(File::open(&input).unwrap()) } else { Stdio::null() };
        Actor::start(command.stdin(stdin))
    };
    let mut others: Vec<_> = (2..=4).map(start).collect();
    let mut own = start(1);
    let last = lines.last().unwrap().clone();
    let since = Instant::now();
    // Wait until every process has delivered all lines, or the limited process has ended.
    while !own.is_over() && !others.iter().chain([&own]).all(|actor| actor.out().contains(&last)) {
        if since.elapsed() > PATIENCE {
            return Err(format!("not all lines are delivered after {PATIENCE:?}; {}", own.err()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = own.out().contains("deliver");
    own.tell_to_stop();
    let ended = own.end()?;
    others.iter_mut().for_each(Actor::tell_to_stop);
    for other in others {
        other.end()?;
    }
    if begun {
        let files: Vec<_> = histories.iter().map(String::as_str).filter(|file| Path::new(file).exists()).collect();
        judged(scene, &files)?;
    }
    Ok(ended)
}

/// Runs a transfer with one end under the limit.
fn channel(scene: &Scene, receives: bool) -> Result<Ended, String> {
    let (run, copy) = (scene.home("meet"), scene.in_place("copy"));
    let text = "some text\n".repeat(200_000);
    let file = scene.file("text", &text);
    let target = if receives { copy } else { scene.home("copy") };
    let base = ["channel", "cat", "here", "--directory", &run, "-w", "20"];
    let listen = [&base[..], &["--listen", "--output", &target]].concat();
    let send = [&base[..], &["--input", &file]].concat();
    let start = |arguments: &[&str], limited: bool| {
        let mut command = if limited { scene.limited(arguments) } else { scene.free(arguments) };
        Actor::start(command.stdin(Stdio::null()))
    };
    let mut own = start(if receives { &listen } else { &send }, true);
    // A command that cannot begin ends without its peer.
    std::thread::sleep(Duration::from_millis(700));
    if own.is_over() {
        return own.end();
    }
    let other = start(if receives { &send } else { &listen }, false).end()?;
    let ended = own.end()?;
    let sent = if receives { other.code } else { ended.code };
    let whole = fs::read_to_string(&target).ok();
    if sent == Some(0) && whole.as_deref() != Some(text.as_str()) {
        return Err(format!("the sender reported success, and the file is not whole; {}", ended.said));
    }
    if sent != Some(0) && whole.is_some_and(|copy| copy != text) {
        return Err("part of a file has its name".to_owned());
    }
    let names = fs::read_dir(Path::new(&target).parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: BTreeSet<_> = names.filter(|name| name.to_string_lossy().ends_with(".part")).collect();
    if left.is_empty() { Ok(ended) } else { Err(format!("it leaves {left:?}")) }
}

/// Runs a command that queries an unlimited node.
fn asking(scene: &Scene, command: &str) -> Result<Ended, String> {
    let (config, run) = (cluster(scene, "shm"), scene.home("run"));
    let _node = free_node(scene, place(&config, &run), &scene.home("node.jsonl"))?;
    let words: &[&str] = if command == "stop" { &["stop"] } else { &["leader", "show"] };
    telling(scene, &[words, &place(&config, &run)].concat())
}

/// Runs `config init`, and requires that its file is complete or does not exist.
fn config_init(scene: &Scene) -> Result<Ended, String> {
    let path = scene.in_place("cluster.toml");
    let ended = alone(scene, &["config", "init", "--fabric", "roce", "--output", &path])?;
    let checked = |path: &str| scene.free(&["config", "check", path]).output().unwrap().status.success();
    let there = Path::new(&path).exists();
    if ended.code == Some(0) && !checked(&path) {
        return Err("success, and the configuration is not whole".to_owned());
    }
    if ended.code != Some(0) && there {
        return Err("it failed, and part of a file has its name".to_owned());
    }
    Ok(ended)
}

/// Runs `check` with its output in a file under the limit.
fn check(scene: &Scene) -> Result<Ended, String> {
    let history = scene.file(
        "h.jsonl",
        "{\"e\":\"cluster\",\"groups\":{\"g1\":[\"a\"]},\"clients\":[\"c\"]}\n\
         {\"t\":1,\"p\":\"c\",\"i\":1,\"e\":\"multicast\",\"m\":[\"c\",\"1\"],\"to\":[\"g1\"],\"len\":1,\"hash\":\"0000000000000001\"}\n\
         {\"t\":2,\"p\":\"a\",\"i\":1,\"e\":\"deliver\",\"m\":[\"c\",\"1\"],\"g\":\"g1\",\"n\":1,\"ts\":[1,\"g1\"],\"hash\":\"0000000000000001\"}\n",
    );
    printing(scene, &["check", "--json", &history])
}
