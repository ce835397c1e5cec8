//! `stentor demo`, `node` and `cast` on RoCEv2.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn the_demonstration_runs_on_it_and_survives_its_leader() {
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let capture = scratch.path("client.pcap");
    let ran = run([
        "demo",
        "--fabric",
        "roce",
        "--messages-limit",
        "1500",
        "--json",
        "--keep",
        keep.to_str().unwrap(),
        "--pcap",
        capture.to_str().unwrap(),
    ]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    assert_eq!(document["fabric"], "RoCEv2 in user space");
    for (property, verdict) in document["properties"].as_object().unwrap() {
        assert_eq!(verdict, "ok", "{property}: {document:#}");
    }
    assert!(document["killed"].is_string(), "{document:#}");
    let capture = fs::read(capture).unwrap();
    assert!(capture.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]) || capture.starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]));
    assert!(capture.len() > 1500 * 100, "every message is in it: {}", capture.len());
    assert_eq!(fs::read_to_string(keep.join("cluster.key")).unwrap().len(), 64);
}

#[test]
fn and_with_one_percent_of_all_packets_lost() {
    // At the same time as the other one, on other addresses.
    let lossy = ["--drop-chance", "0.01", "--seed", "5", "--no-kill"];
    let ran = run([&["demo", "--fabric", "roce", "--messages-limit", "600", "--json"], &lossy[..]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    assert_eq!((&document["ok"], &document["messages"]), (&true.into(), &600.into()));
    let history = document["history"].as_str().unwrap();
    let _ = fs::remove_dir_all(history);
}

#[test]
fn the_broadcast_runs_on_it_too_and_loses_packets() {
    for lossy in [&[][..], &["--drop-chance", "0.01"]] {
        let lines = ["demo", "--neb", "--fabric", "roce", "--messages-limit", "100", "--json"];
        let ran = run([&lines[..], lossy].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        let document = ran.document("demo-neb");
        for (property, verdict) in document["properties"].as_object().unwrap() {
            assert_eq!(verdict, "ok", "{property}: {document:#}");
        }
        let _ = fs::remove_dir_all(document["history"].as_str().unwrap());
    }
}

/// Members, each with an address; none outlives the test.
struct Nodes {
    scratch: Scratch,
    children: Vec<Child>,
}

/// No two tests at the same time have the same.
fn network(of: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 200 + of, std::process::id() as u8, 0)
}

impl Nodes {
    fn new(of: u8, key: &str) -> Self {
        let scratch = Scratch::new();
        let [a, b, c, _] = network(of).octets();
        let member = |n| format!("{{ id = \"g1.{n}\", address = \"{a}.{b}.{c}.{n}:7{n}01\" }}");
        let members = (1..=3).map(member).collect::<Vec<_>>().join(", ");
        let limits = "message_bytes = 64\nwindow = 16\nclients = 2\nring_kib = 16\nbody_ring_kib = 16";
        let text = format!(
            "cluster = \"hand\"\nfabric = \"roce\"\n{key}\n[election]\nkind = \"heartbeat\"\n[limits]\n{limits}\n\
             [[group]]\nid = \"g1\"\nprocess = [ {members} ]\n"
        );
        scratch.file("cluster.toml", &text);
        scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
        Nodes { scratch, children: Vec::new() }
    }

    fn config(&self) -> String {
        self.scratch.path("cluster.toml").to_str().unwrap().to_owned()
    }

    fn start(&mut self, name: &str) {
        let mut command = stentor();
        let create = |end: &str| fs::File::create(self.scratch.path(&format!("{name}.{end}"))).unwrap();
        command.args(["node", "--id", name, "--config", &self.config()]).stdin(Stdio::piped());
        self.children.push(command.stdout(create("out")).stderr(create("err")).spawn().unwrap());
    }

    fn until(&self, file: &str, said: impl Fn(&str) -> bool) {
        let since = Instant::now();
        loop {
            let text = fs::read_to_string(self.scratch.path(file)).unwrap();
            if said(&text) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{file}: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn cast(&self, more: &[&str]) -> Ran {
        let mut command = stentor();
        command.args(["cast", "--to", "g1", "--config", &self.config()]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(b"one\ntwo\nthree\n");
        ran(&child.wait_with_output().unwrap())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_cluster_by_hand_delivers_and_tells_who_is_lost() {
    let mut nodes = Nodes::new(1, "key = \"file:cluster.key\"");
    ["g1.1", "g1.2", "g1.3"].iter().for_each(|name| nodes.start(name));
    let own = network(1).octets();
    let own = Ipv4Addr::new(own[0], own[1], own[2], 99).to_string();
    let cast = nodes.cast(&["--bind", &own, "--json"]);
    assert_eq!((cast.code, cast.stderr.as_str()), (0, ""), "{}", cast.stdout);
    assert_eq!(cast.document("cast")["messages"], 3);
    for name in ["g1.1", "g1.2", "g1.3"] {
        nodes.until(&format!("{name}.out"), |text| text.lines().count() == 3);
        nodes.until(&format!("{name}.err"), |text| text.contains("all members are connected"));
    }
    let mut last = nodes.children.pop().unwrap();
    last.kill().unwrap();
    last.wait().unwrap();
    nodes.until("g1.1.err", |text| text.contains("lost g1.3; g1 goes on while it has a majority"));
    nodes.start("g1.3");
    nodes.until("g1.1.err", |text| text.contains("g1.3 is there again"));
    // The operator's questions go over sockets that only shared memory has.
    run(["leader", "show", "--config", &nodes.config()]).refused(&["needs fabric \"shm\"", "\"roce\""]);
}

#[test]
fn who_has_no_key_or_another_one_gets_nothing() {
    let config = |nodes: &Nodes| ["node", "--id", "g1.1", "--config", &nodes.config()].map(str::to_owned);
    let unnamed = Nodes::new(2, "");
    run(config(&unnamed)).refused(&["needs a key, and the configuration names none", "cluster.toml", "file:PATH"]);
    let absent = Nodes::new(2, "key = \"file:no.key\"");
    run(config(&absent)).refused(&["cannot read the key", "no.key"]);
    let short = Nodes::new(2, "key = \"file:cluster.key\"");
    fs::write(short.scratch.path("cluster.key"), "short").unwrap();
    run(config(&short)).refused(&["the key has 5 bytes"]);
    let mut good = Nodes::new(2, "key = \"file:cluster.key\"");
    ["g1.1", "g1.2", "g1.3"].iter().for_each(|name| good.start(name));
    good.until("g1.1.err", |text| text.contains("all members are connected"));
    // The address is in use.
    run(config(&good)).refused(&["is taken by another process", "--bind"]);
    let other = Nodes::new(2, "key = \"file:cluster.key\"");
    fs::write(other.scratch.path("cluster.key"), "another key that is long enough").unwrap();
    let own = network(2).octets();
    let own = Ipv4Addr::new(own[0], own[1], own[2], 98).to_string();
    let cast = other.cast(&["--bind", &own, "--timeout", "1"]);
    assert_eq!(cast.code, 1, "{}", cast.stderr);
    assert!(
        cast.stderr.contains("not there after 1s: g1.1, g1.2, g1.3") && cast.stderr.contains("key"),
        "{}",
        cast.stderr
    );
}

#[test]
fn what_means_nothing_is_refused() {
    run(["demo", "--drop-chance", "0.5"]).refused(&["on shared memory", "--fabric roce"]);
    let scratch = Scratch::new();
    let path = scratch.path("cluster.toml");
    assert_eq!(run(["config", "init", "--fabric", "roce", "-o", path.to_str().unwrap()]).code, 0);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("fabric  = \"roce\"") && text.contains("127.1.2.3"), "{text}");
    assert_eq!(run(["config".as_ref(), "check".as_ref(), Path::new(&path).as_os_str()]).code, 0);
}
