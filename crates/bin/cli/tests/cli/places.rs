//! Tests of the directories in which the processes of a host meet: directories that are emptied, directories with and
//! without `XDG_RUNTIME_DIR`, and relative paths.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, ran, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster of one member, which is killed at the end of the test.
struct Lone {
    scratch: Scratch,
    config: PathBuf,
    node: Option<Child>,
}

impl Lone {
    /// Configures the cluster. No other cluster in the usual directories has its name.
    fn new(cluster: &str) -> Self {
        let scratch = Scratch::new();
        let text = format!(
            "cluster = \"{cluster}-{}\"\nfabric = \"shm\"\n[limits]\nclients = 2\n[[group]]\nid = \"g1\"\n\
             process = [ {{ id = \"g1.1\", address = \"127.0.0.1:7101\" }} ]\n",
            std::process::id()
        );
        Lone { config: scratch.file("cluster.toml", &text), scratch, node: None }
    }

    fn command(&self, words: &[&str], change: impl Fn(&mut Command)) -> Command {
        let mut command = stentor();
        command.args(words).arg("--config").arg(&self.config);
        change(&mut command);
        command
    }

    fn start(&mut self, change: impl Fn(&mut Command)) {
        let mut command = self.command(&["node", "--id", "g1.1"], change);
        let [out, err] = ["out", "err"].map(|end| File::create(self.scratch.path(end)).unwrap());
        self.node = Some(command.stdout(out).stderr(err).spawn().expect("the command starts"));
        self.until("ready");
    }

    fn until(&self, said: &str) {
        let since = Instant::now();
        loop {
            let text = fs::read_to_string(self.scratch.path("err")).unwrap();
            if text.contains(said) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "`{said}` is not in: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn check_is_found(&self, change: impl Fn(&mut Command) + Copy) {
        let shown = ran(&self.command(&["leader", "show"], change).output().unwrap());
        assert_eq!(shown.code, 0, "{}{}", shown.stdout, shown.stderr);
        let line = File::open(self.scratch.file("line", "a line\n")).unwrap();
        let mut cast = self.command(&["cast", "--to", "g1", "--timeout", "20"], change);
        let sent = ran(&cast.stdin(line).output().unwrap());
        assert_eq!(sent.code, 0, "{}", sent.stderr);
    }

    fn second_is_refused(&self, change: impl Fn(&mut Command)) {
        let second = ran(&self.command(&["node", "--id", "g1.1"], change).stdin(Stdio::null()).output().unwrap());
        let pid = self.node.as_ref().unwrap().id();
        second.refused(&["`g1.1` of cluster ", &format!("is running already, as pid {pid}")]);
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        if let Some(node) = &mut self.node {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

#[test]
fn emptied_directory_is_refilled_and_a_second_process_is_refused() {
    let mut lone = Lone::new("emptied");
    let directory = lone.scratch.path("s");
    let there = |command: &mut Command| {
        command.arg("--directory").arg(&directory);
    };
    lone.start(there);
    fs::remove_dir_all(&directory).unwrap();
    lone.second_is_refused(there);
    lone.until("was removed");
    // The socket for operators is recreated a moment later.
    let since = Instant::now();
    while !has(&directory, "ctl") {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    lone.check_is_found(there);
}

/// Returns whether a directory or one of its subdirectories contains a file with this extension.
fn has(directory: &Path, end: &str) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.into_iter().any(|path| path.extension().is_some_and(|is| is == end) || path.is_dir() && has(&path, end))
}

#[test]
fn processes_with_and_without_a_runtime_directory_meet() {
    for (there, here) in [(Some("run"), None), (None, Some("run")), (Some("run"), Some("other"))] {
        let mut lone = Lone::new("runtime");
        ["run", "other"].iter().for_each(|name| fs::create_dir(lone.scratch.path(name)).unwrap());
        let paths = [there, here].map(|name| name.map(|name| lone.scratch.path(name)));
        let with = |path: &Option<PathBuf>| {
            let path = path.clone();
            move |command: &mut Command| {
                path.iter().for_each(|path| {
                    command.env("XDG_RUNTIME_DIR", path);
                });
            }
        };
        lone.start(with(&paths[0]));
        let here = with(&paths[1]);
        lone.check_is_found(&here);
        lone.second_is_refused(&here);
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn processes_are_found_after_their_runtime_directory_is_removed() {
    let mut lone = Lone::new("login");
    let runtime = lone.scratch.path("run");
    fs::create_dir(&runtime).unwrap();
    lone.start(|command| {
        command.env("XDG_RUNTIME_DIR", &runtime);
    });
    fs::remove_dir_all(&runtime).unwrap();
    lone.until("it is now /tmp/");
    std::thread::sleep(Duration::from_millis(1500));
    lone.check_is_found(|_| ());
    let said = fs::read_to_string(lone.scratch.path("err")).unwrap();
    assert_eq!(said.matches(" was removed").count(), 1, "the new socket is not removed: {said}");
}

#[test]
fn relative_directory_is_found_from_everywhere() {
    let mut lone = Lone::new("relative");
    let (home, away) = (lone.scratch.path("home"), lone.scratch.path("away"));
    [&home, &away].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    lone.start(|command| {
        command.args(["--directory", "s"]).current_dir(&home);
    });
    lone.check_is_found(|command| {
        command.arg("--directory").arg(home.join("s")).current_dir(&away);
    });
    lone.second_is_refused(|command| {
        command.args(["--directory", "../home/s"]).current_dir(&away);
    });
}

#[test]
fn channel_places_that_differ_beyond_ascii_are_separate() {
    let scratch = Scratch::new();
    let cat = |words: &[&str]| {
        let mut command = stentor();
        command.args(["-q", "channel", "cat"]).args(words).arg("--directory").arg(scratch.path("s"));
        command
    };
    let got = File::create(scratch.path("got")).unwrap();
    let mut listener = cat(&["--listen", "-w", "10", "доход"]);
    let mut listener = listener.stdin(Stdio::null()).stdout(got).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while !has(&scratch.path("s"), "sock") {
        assert!(since.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    let secret = || File::open(scratch.file("secret", "secret\n")).unwrap();
    let other = ran(&cat(&["-w", "1", "вывод"]).stdin(secret()).output().unwrap());
    let same = ran(&cat(&["-w", "10", "доход"]).stdin(secret()).output().unwrap());
    let ended = listener.wait().unwrap();
    assert_ne!(other.code, 0, "nobody listens there");
    assert_eq!((same.code, ended.code()), (0, Some(0)), "{}", same.stderr);
    assert_eq!(fs::read_to_string(scratch.path("got")).unwrap(), "secret\n");
}
