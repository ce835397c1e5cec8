//! `stentor channel cat` between two processes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Longest time until the death of a peer is noticed.
const MISSED: Duration = Duration::from_secs(20);

/// A meeting place that no other test uses, and the arguments of both sides.
pub(crate) struct Meeting {
    scratch: Scratch,
    place: String,
    fabric: &'static str,
    /// Further arguments of both sides.
    pub(crate) more: &'static [&'static str],
}

impl Meeting {
    pub(crate) fn new(fabric: &'static str) -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // The second octet of the address differs between tests, because it also determines the sender's address.
        let place = format!("127.{}.{}.7:7399", 140 + n, std::process::id() % 251);
        Meeting { scratch: Scratch::new(), place, fabric, more: &[] }
    }

    pub(crate) fn with(self, more: &'static [&'static str]) -> Self {
        Meeting { more, ..self }
    }

    fn both() -> [Self; 2] {
        ["shm", "roce"].map(Meeting::new)
    }

    fn cat(&self, more: &[&str]) -> Command {
        let mut command = stentor();
        command.args(["channel", "cat", &self.place, "--fabric", self.fabric]).args(self.more).args(more);
        if self.fabric == "shm" {
            command.arg("--directory").arg(self.scratch.path("meet"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn listen(&self, more: &[&str]) -> Child {
        self.cat(&[&["--listen"], more].concat()).spawn().unwrap()
    }

    fn send(&self, more: &[&str]) -> Ran {
        ran(&self.cat(more).output().unwrap())
    }

    /// Creates a file of `bytes` bytes. No two of its kilobytes are equal.
    fn file(&self, bytes: usize) -> String {
        let path = self.scratch.path("file");
        let mut file = Vec::with_capacity(bytes + 8);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        while file.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            file.extend(state.to_le_bytes());
        }
        file.truncate(bytes);
        fs::write(&path, file).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path(name).to_str().unwrap().to_owned()
    }
}

fn finish(child: Child) -> Ran {
    ran(&child.wait_with_output().unwrap())
}

fn checked_document(what: &str, side: &Ran, role: &str, bytes: usize) -> Value {
    assert_eq!(side.code, 0, "{what}: {role}: {}", side.stderr);
    let report = side.document("channel-cat");
    assert_eq!((&report["role"], &report["bytes"]), (&role.into(), &bytes.into()), "{what}: {report:#}");
    report
}

#[test]
fn files_arrive_complete_with_their_hash() {
    Meeting::both().iter().for_each(files_arrive);
}

pub(crate) fn files_arrive(meeting: &Meeting) {
    for bytes in [0, 1, 70_000, 5 << 20] {
        let (file, copy) = (meeting.file(bytes), meeting.path("copy"));
        let listener = meeting.listen(&["--output", &copy, "--json"]);
        let sender = meeting.send(&["--input", &file, "--json"]);
        let what = format!("{}, {bytes} bytes", meeting.fabric);
        let sent = checked_document(&what, &sender, "sender", bytes);
        let received = checked_document(&what, &finish(listener), "receiver", bytes);
        assert_eq!(sent["sha256"], received["sha256"]);
        assert!(fs::read(&copy).unwrap() == fs::read(&file).unwrap(), "{what}");
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sent["sha256"] == known, bytes == 0, "the hash of an empty file is known");
        fs::remove_file(copy).unwrap();
    }
}

/// The command works in a pipe: standard input goes to standard output, and reports go to standard error.
#[test]
fn pipe_is_forwarded_while_it_is_written() {
    let meeting = Meeting::new("shm");
    let mut listener = meeting.listen(&[]);
    let mut sender = meeting.cat(&[]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (sender.stdin.take().unwrap(), listener.stdout.take().unwrap());
    for line in ["one\n", "two\n"] {
        input.write_all(line.as_bytes()).unwrap();
        let mut came = [0; 4];
        // The line arrives before the next one is written, because nothing is buffered.
        output.read_exact(&mut came).unwrap();
        assert_eq!(came, line.as_bytes());
    }
    drop(input);
    let (sender, listener) = (finish(sender), finish(listener));
    assert_eq!((sender.code, listener.code), (0, 0), "{}{}", sender.stderr, listener.stderr);
    assert!(sender.stderr.contains("sent 8 bytes over shared memory"), "{}", sender.stderr);
    assert!(listener.stderr.contains("SHA-256 "), "{}", listener.stderr);
}

#[test]
fn lost_packets_are_retransmitted() {
    let meeting = Meeting::new("roce");
    let bad = ["--drop-chance", "0.01", "--duplicate-chance", "0.01", "--reorder-chance", "0.01"];
    let (file, copy) = (meeting.file(600_000), meeting.path("copy"));
    let listener = meeting.listen(&[&bad[..], &["--output", &copy, "--json"]].concat());
    let sender = meeting.send(&[&bad[..], &["--input", &file, "--json"]].concat());
    checked_document("with loss", &sender, "sender", 600_000);
    checked_document("with loss", &finish(listener), "receiver", 600_000);
    assert!(fs::read(copy).unwrap() == fs::read(file).unwrap());
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn missing_peer_is_reported() {
    for meeting in Meeting::both() {
        let since = Instant::now();
        let alone = meeting.send(&["-w", "1"]);
        assert_eq!(alone.code, 1, "{}", alone.stderr);
        for words in ["did not connect within 1 s", "--listen", &meeting.place] {
            assert!(alone.stderr.contains(words), "{}", alone.stderr);
        }
        let copy = meeting.path("copy");
        let waiting = finish(meeting.listen(&["-w", "1", "--output", &copy]));
        assert!(waiting.code == 1 && waiting.stderr.contains("did not connect within 1 s"), "{}", waiting.stderr);
        assert!(!Path::new(&copy).exists(), "an empty file is no copy");
        assert!(since.elapsed() < Duration::from_secs(15));
    }
}

/// Returns the incomplete files of a target.
fn parts(path: &str) -> Vec<fs::DirEntry> {
    let path = Path::new(path);
    let begin = format!(".{}.", path.file_name().unwrap().to_str().unwrap());
    let is_part = |entry: &fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        name.starts_with(&begin) && name.ends_with(".part")
    };
    fs::read_dir(path.parent().unwrap()).unwrap().map(Result::unwrap).filter(is_part).collect()
}

/// Waits until some data has arrived, so that the transfer is in progress.
fn until_it_flows(path: &str) {
    let since = Instant::now();
    let came = || parts(path).iter().any(|part| part.metadata().is_ok_and(|file| file.len() > 0));
    while !came() {
        assert!(since.elapsed() < Duration::from_secs(30), "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn lost_peer_ends_the_transfer_and_is_named() {
    Meeting::both().iter().for_each(the_other_side_dies);
}

pub(crate) fn the_other_side_dies(meeting: &Meeting) {
    let copy = meeting.path("copy");
    let endless = || meeting.cat(&[]).stdin(File::open("/dev/zero").unwrap()).spawn().unwrap();
    for listener_dies in [true, false] {
        let (mut listener, mut sender) = (meeting.listen(&["--output", &copy]), endless());
        until_it_flows(&copy);
        let (died, remains) = if listener_dies { (&mut listener, sender) } else { (&mut sender, listener) };
        died.kill().unwrap();
        died.wait().unwrap();
        let since = Instant::now();
        let remains = finish(remains);
        assert!(since.elapsed() < MISSED, "{}: it took {:?}", meeting.fabric, since.elapsed());
        assert_eq!(remains.code, 1, "{}", remains.stderr);
        assert!(remains.stderr.contains("connection 0 with p"), "{}", remains.stderr);
        assert!(remains.stderr.contains("nothing is resumed"), "{}", remains.stderr);
        assert!(!remains.stderr.contains("not returned all memory"), "{}", remains.stderr);
        assert!(!Path::new(&copy).exists(), "an incomplete file does not have its name");
        assert_eq!(!parts(&copy).is_empty(), listener_dies, "a receiver that is alive removes it");
        parts(&copy).iter().for_each(|part| fs::remove_file(part.path()).unwrap());
    }
}

#[test]
fn full_disk_is_reported_on_both_sides() {
    for meeting in Meeting::both() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let listener = meeting.cat(&["--listen"]).stdout(full).spawn().unwrap();
        let sender = meeting.send(&["--input", &meeting.file(3 << 20)]);
        let listener = finish(listener);
        assert_eq!((sender.code, listener.code), (1, 1), "{}{}", sender.stderr, listener.stderr);
        assert!(listener.stderr.contains("cannot write: No space left on device"), "{}", listener.stderr);
        assert!(listener.stderr.contains("make room"), "{}", listener.stderr);
        let told = "the other side failed: cannot write: No space left on device";
        assert!(sender.stderr.contains(told), "{}", sender.stderr);
    }
}

/// A file whose first read fails: the memory of a process, in which address 0 is not mapped.
#[test]
fn read_error_is_reported_on_both_sides() {
    let meeting = Meeting::new("shm");
    let copy = meeting.path("copy");
    let listener = meeting.listen(&["--output", &copy]);
    let sender = meeting.send(&["--input", "/proc/self/mem"]);
    let listener = finish(listener);
    assert_eq!((sender.code, listener.code), (1, 1), "{}{}", sender.stderr, listener.stderr);
    assert!(sender.stderr.contains("cannot read: ") && sender.stderr.contains("/proc/self/mem"), "{}", sender.stderr);
    assert!(listener.stderr.contains("the other side failed: cannot read: "), "{}", listener.stderr);
    assert!(!Path::new(&copy).exists());
}

#[test]
fn local_errors_are_reported_before_the_peer_connects() {
    let scratch = Scratch::new();
    let since = Instant::now();
    let cat = |args: &[&str]| run([&["channel", "cat"], args].concat());
    cat(&["there", "--input", "/no/such/file"]).refused(&["cannot read", "/no/such/file"]);
    cat(&["there", "--input", "/proc"]).refused(&["cannot read", "/proc"]);
    let mine = scratch.file("mine", "mine");
    let mine = mine.to_str().unwrap();
    cat(&["there", "--listen", "--output", mine]).refused(&["exists already", mine]);
    assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
    cat(&["there", "--listen", "--output", "/no/such/place"]).refused(&["cannot write", "/no/such/place"]);
    assert_eq!(cat(&["there", "--listen", "--json"]).code, 2);
    cat(&["there", "--drop-chance", "0.1"]).refused(&["shared memory", "--fabric shm"]);
    cat(&["nobody", "--fabric", "roce"]).refused(&["not an address", "HOST:PORT"]);
    cat(&["192.0.2.1:7399", "--fabric", "roce", "--bind", "127.0.0.1"]).refused(&["no key", "--key"]);
    cat(&["127.0.0.1:7399", "--fabric", "roce", "--key", mine]).refused(&["the key has 4 bytes", mine]);
    cat(&["127.0.0.1:7399", "--fabric", "roce", "--bind", "::1"]).refused(&["IPv4", "--bind"]);
    let long = scratch.path(&"x".repeat(100));
    cat(&["there", "--directory", long.to_str().unwrap()]).refused(&["shorter"]);
    for words in [&["there", "--listen", "--input", mine][..], &["there", "--output", mine], &[]] {
        assert_eq!(cat(words).code, 2);
    }
    assert!(since.elapsed() < Duration::from_secs(15));
}

#[test]
fn place_has_one_listener_and_one_sender() {
    let meeting = Meeting::new("shm");
    let mut first = meeting.listen(&[]);
    let socket = meeting.scratch.path("meet");
    let since = Instant::now();
    while fs::read_dir(&socket).map_or(0, Iterator::count) == 0 {
        assert!(since.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = finish(meeting.listen(&[]));
    second.refused(&["there is a listener already", &first.id().to_string()]);
    first.kill().unwrap();
    first.wait().unwrap();
}

/// Run by `cargo xtask nightly`, because it takes a minute and needs two temporary files of a gibibyte.
#[test]
#[ignore = "a gibibyte over both fabrics, by cargo xtask nightly --only channel-long"]
fn a_gibibyte() {
    for meeting in Meeting::both() {
        let (file, copy) = (meeting.file(1 << 30), meeting.path("copy"));
        let listener = meeting.listen(&["--output", &copy, "--json"]);
        let sender = meeting.send(&["--input", &file, "--json"]);
        let sent = checked_document(meeting.fabric, &sender, "sender", 1 << 30);
        let received = checked_document(meeting.fabric, &finish(listener), "receiver", 1 << 30);
        assert_eq!(sent["sha256"], received["sha256"]);
        println!("{}: {} MB/s", meeting.fabric, sent["mb_per_s"]);
        let same = Command::new("cmp").args([&file, &copy]).status().unwrap();
        assert!(same.success());
    }
}
