//! Tests of `stentor demo`, `node` and `cast` on RoCEv2.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ran, Scratch, ran, run, signal, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn demonstration_survives_its_leader() {
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let ran = run(["demo", "--fabric", "roce", "--messages-limit", "1500", "--json", "--keep", keep.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    assert_eq!(document["fabric"], "RoCEv2 in user space");
    for (property, verdict) in document["properties"].as_object().unwrap() {
        assert_eq!(verdict, "ok", "{property}: {document:#}");
    }
    assert!(document["killed"].is_string(), "{document:#}");
    assert_eq!(fs::read_to_string(keep.join("cluster.key")).unwrap().len(), 64);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn demonstration_survives_one_percent_packet_loss() {
    // The test runs at the same time as the previous one, on other addresses.
    let lossy = ["--drop-chance", "0.01", "--seed", "5", "--no-kill"];
    let ran = run([&["demo", "--fabric", "roce", "--messages-limit", "600", "--json"], &lossy[..]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let document = ran.document("demo");
    assert_eq!((&document["ok"], &document["messages"]), (&true.into(), &600.into()));
    let history = document["history"].as_str().unwrap();
    let _ = fs::remove_dir_all(history);
}

/// A leader is killed and restarted, so it leaves its fan-out sets and joins them again.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn switch_copies_although_a_leader_dies_and_packets_are_lost() {
    let lines = ["demo", "--fabric", "roce", "--switch", "--messages-limit", "1200", "--json"];
    let ran = run([&lines[..], &["--drop-chance", "0.01"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("one write reaches all members of a set"), "{}", ran.stderr);
    let document = ran.document("demo");
    for (property, verdict) in document["properties"].as_object().unwrap() {
        assert_eq!(verdict, "ok", "{property}: {document:#}");
    }
    assert!(document["killed"].is_string(), "{document:#}");
    let copies = |what: &str| document["switch"][what].as_u64().unwrap();
    let writes = |how: &str| document[how]["body"].as_f64().unwrap();
    // While a host is missing, writes are posted one by one to each receiver.
    assert!(copies("copies") > 1000 && copies("copies_asked") > 1000, "{document:#}");
    assert!(writes("writes_by_step") < 0.8 * writes("items_by_step"), "{document:#}");
    let _ = fs::remove_dir_all(document["history"].as_str().unwrap());
}

/// All three lines of a text use the fan-out set, because the demonstration waits for the set before it starts.
#[test]
fn short_text_uses_the_switch() {
    let ran = run(["demo", "--fabric", "roce", "--switch", "--messages-limit", "3", "--json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let document = ran.document("demo");
    assert_eq!(document["writes_by_step"]["body"], 1.0, "{document:#}");
    let _ = fs::remove_dir_all(document["history"].as_str().unwrap());
    run(["demo", "--switch"]).refused(&["packets of RoCEv2 only", "--fabric roce"]);
    let many = ["demo", "--fabric", "roce", "--switch", "--groups", "8", "--replicas", "4"];
    run(many).refused(&["32 processes and a client", "32 at most", "leave out --switch"]);
}

/// Returns the switch that a demonstration started: its child with the subcommand `switch`.
fn switch_of(demo: u32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{demo}/task/{demo}/children")).ok()?;
    let is_switch = |pid: &i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some("switch")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_switch)
}

/// The demonstration ends when its switch dies, instead of waiting for copies.
#[test]
fn demonstration_ends_when_its_switch_dies() {
    for neb in [&[][..], &["--neb"]] {
        let mut demo = stentor();
        demo.args(["demo", "--fabric", "roce", "--switch"]).args(neb);
        let demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let since = Instant::now();
        let switch = loop {
            if let Some(switch) = switch_of(demo.id()) {
                break switch;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "no switch is started");
            std::thread::sleep(Duration::from_millis(1));
        };
        signal(switch.unsigned_abs(), Signal::KILL);
        let (since, ran) = (Instant::now(), ran(&demo.wait_with_output().unwrap()));
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("the switch failed (signal: 9"), "{}", ran.stderr);
        // If the failure went unnoticed, the demonstration would wait ten seconds for copies, and then send its text.
        assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    }
}

#[test]
fn switch_copies_a_broadcast_with_a_liar() {
    let lines = ["demo", "--neb", "--fabric", "roce", "--switch", "--messages-limit", "100", "--json"];
    let ran = run([&lines[..], &["--drop-chance", "0.01"]].concat());
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let document = ran.document("demo-neb");
    for (property, verdict) in document["properties"].as_object().unwrap() {
        assert_eq!(verdict, "ok", "{property}: {document:#}");
    }
    // Each of the hundred broadcasts goes to four other processes.
    let copies = |what: &str| document["switch"][what].as_u64().unwrap();
    assert!(copies("copies") >= 200 && copies("copies_asked") >= 200, "{document:#}");
    let _ = fs::remove_dir_all(document["history"].as_str().unwrap());
}

#[test]
fn broadcast_survives_packet_loss() {
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

/// Members, each with its own address. All are killed at the end of the test.
pub(crate) struct Nodes {
    pub(crate) scratch: Scratch,
    children: Vec<Child>,
}

/// Returns a network that no concurrent test uses.
fn network(of: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 200 + of, std::process::id() as u8, 0)
}

/// Returns a name that no other cluster has at the same time.
fn named(of: u8) -> String {
    let [_, b, c, _] = network(of).octets();
    format!("hand-{b}-{c}")
}

impl Nodes {
    pub(crate) fn new(of: u8, key: &str) -> Self {
        Nodes::sized(of, key, 3)
    }

    fn sized(of: u8, key: &str, members: u8) -> Self {
        let scratch = Scratch::new();
        let [a, b, c, _] = network(of).octets();
        let member = |n| format!("{{ id = \"g1.{n}\", address = \"{a}.{b}.{c}.{n}:7{n}01\" }}");
        let members = (1..=members).map(member).collect::<Vec<_>>().join(", ");
        let limits = "message_bytes = 128\nwindow = 16\nclients = 2\nring_kib = 16\nbody_ring_kib = 16";
        let text = format!(
            "cluster = \"{}\"\nfabric = \"roce\"\n{key}\n[election]\nkind = \"heartbeat\"\n[limits]\n{limits}\n\
             [[group]]\nid = \"g1\"\nprocess = [ {members} ]\n",
            named(of)
        );
        scratch.file("cluster.toml", &text);
        scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
        Nodes { scratch, children: Vec::new() }
    }

    fn config(&self) -> String {
        self.scratch.path("cluster.toml").to_str().unwrap().to_owned()
    }

    pub(crate) fn start(&mut self, name: &str) {
        self.start_in(name, "run");
    }

    /// Starts a member with a directory for operators.
    fn start_in(&mut self, name: &str, directory: &str) {
        let mut command = stentor();
        command.args(["node", "--id", name, "--config", &self.config(), "--directory"]);
        command.arg(self.scratch.path(directory));
        self.spawn(name, command);
    }

    fn spawn(&mut self, name: &str, mut command: Command) {
        let create = |end: &str| fs::File::create(self.scratch.path(&format!("{name}.{end}"))).unwrap();
        command.stdin(Stdio::piped());
        self.children.push(command.stdout(create("out")).stderr(create("err")).spawn().unwrap());
    }

    pub(crate) fn until(&self, file: &str, said: impl Fn(&str) -> bool) {
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

    /// Runs `stentor leader` in the directory of the first members.
    fn leader(&self, more: &[&str]) -> Ran {
        let directory = self.scratch.path("run");
        let place = ["--config", &self.config(), "--directory", directory.to_str().unwrap()].map(str::to_owned);
        run(["leader".to_owned()].into_iter().chain(more.iter().map(|word| (*word).to_owned())).chain(place))
    }

    /// Runs `leader show` until it ends with this code and prints these parts. Each answer must arrive in time.
    fn until_shown(&self, what: &str, code: i32, parts: &[&str]) {
        let since = Instant::now();
        loop {
            let begun = Instant::now();
            let shown = self.leader(&["show"]);
            assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
            if shown.code == code && parts.iter().all(|part| shown.stdout.contains(part)) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: exit code {}: {}", shown.code, shown.stdout);
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

/// Number of deliveries of a node after the three lines of one cast. The opening of the session precedes them, and its
/// end follows.
const LINES: std::ops::RangeInclusive<u64> = 4..=5;

/// Returns the number of messages that a node delivered or restored from another member's state.
fn reached(text: &str) -> u64 {
    let line = |text: &str| serde_json::from_str::<Value>(text).ok();
    let number = |line: Value| line["n"].as_u64().or(line["restored"]["n"].as_u64());
    text.lines().last().and_then(line).and_then(number).unwrap_or(0)
}

#[test]
fn manual_cluster_delivers_and_names_a_lost_member() {
    let mut nodes = Nodes::new(1, "key = \"file:cluster.key\"");
    ["g1.1", "g1.2", "g1.3"].iter().for_each(|name| nodes.start(name));
    let own = network(1).octets();
    let own = Ipv4Addr::new(own[0], own[1], own[2], 99).to_string();
    let cast = nodes.cast(&["--bind", &own, "--json"]);
    // On a busy machine the client may have to wait for the members.
    assert!(
        cast.code == 0 && cast.stderr.lines().all(|line| line.contains(" warn cast: waiting for ")),
        "{}",
        cast.stderr
    );
    assert_eq!(cast.document("cast")["messages"], 3);
    for name in ["g1.1", "g1.2", "g1.3"] {
        nodes.until(&format!("{name}.out"), |text| LINES.contains(&reached(text)));
        nodes.until(&format!("{name}.err"), |text| text.contains("all members are connected"));
    }
    let mut last = nodes.children.pop().unwrap();
    last.kill().unwrap();
    last.wait().unwrap();
    nodes.until("g1.1.err", |text| text.contains("lost g1.3; g1 goes on: 2 of its 3 members are there, 2 have to"));
    nodes.start("g1.3");
    nodes.until("g1.1.err", |text| text.contains("g1.3 is there again"));
}

#[test]
fn full_disk_under_a_capture_is_reported_once_and_stops_no_member() {
    let mut nodes = Nodes::new(8, "key = \"file:cluster.key\"");
    for name in ["g1.1", "g1.2", "g1.3"] {
        let mut command = stentor();
        command.args(["node", "--id", name, "--config", &nodes.config(), "--pcap", "/dev/full", "--directory"]);
        command.arg(nodes.scratch.path("run"));
        nodes.spawn(name, command);
    }
    let full = "cannot write the capture /dev/full: No space left on device";
    let cast = nodes.cast(&["--pcap", "/dev/full", "--json"]);
    assert_eq!(cast.code, 0, "{}", cast.stderr);
    assert_eq!(cast.document("cast")["messages"], 3);
    assert_eq!(cast.stderr.matches(full).count(), 1, "{}", cast.stderr);
    assert!(cast.stderr.contains("it is incomplete"), "{}", cast.stderr);
    for name in ["g1.1", "g1.2", "g1.3"] {
        nodes.until(&format!("{name}.out"), |text| LINES.contains(&reached(text)));
        nodes.until(&format!("{name}.err"), |text| text.contains(full));
    }
    assert_eq!(nodes.cast(&[]).code, 0, "they go on");
    for name in ["g1.1", "g1.2", "g1.3"] {
        nodes.until(&format!("{name}.out"), |text| reached(text) >= 5 + LINES.start());
        let said = fs::read_to_string(nodes.scratch.path(&format!("{name}.err"))).unwrap();
        assert_eq!(said.matches(full).count(), 1, "{said}");
    }
}

#[test]
fn leaders_on_all_hosts_are_shown_and_local_ones_are_moved() {
    let mut nodes = Nodes::new(3, "key = \"file:cluster.key\"");
    let nobody = nodes.leader(&["move", "--to", "g1.2"]);
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("0 of its 3 members answer"), "{}", nobody.stderr);
    // The third member has another directory, as if it ran on another host.
    ["g1.1", "g1.2"].iter().for_each(|name| nodes.start_in(name, "run"));
    nodes.start_in("g1.3", "elsewhere");
    nodes.until("g1.1.err", |text| text.contains("all members are connected"));
    let shown = nodes.leader(&["show", "--json"]);
    assert_eq!(shown.code, 0, "{}", shown.stdout);
    let shown = shown.document("leader-show");
    let states = |shown: &Value, what: &str| {
        let members = shown["members"].as_array().unwrap();
        members.iter().filter(|member| member["state"] == what).map(|member| member["id"].clone()).collect::<Vec<_>>()
    };
    // The third member is asked at its network address.
    assert_eq!(states(&shown, "leads").len() + states(&shown, "follows").len(), 3, "{shown:#}");
    assert!(shown["members"][2]["standing"]["id"] == "g1.3", "{shown:#}");
    let moved = |to: &str| {
        let since = Instant::now();
        loop {
            // Right after the start no election has named a leader yet.
            let moved = nodes.leader(&["move", "--to", to, "--json"]);
            if moved.code == 0 || since.elapsed() > PATIENCE {
                return moved.document("leader-move");
            }
        }
    };
    assert_eq!(moved("g1.2")["to"], "g1.2");
    let shown = nodes.leader(&["show", "--json"]).document("leader-show");
    assert_eq!(states(&shown, "leads"), ["g1.2"], "{shown:#}");
    // The leader on this host moves the leadership to another host. Only that host can move it back.
    assert_eq!(moved("g1.3")["to"], "g1.3");
    nodes.until_shown("it leads on another host", 0, &["g1 works: g1.3 leads, 3 of its 3 members"]);
    // A command with another key gets no answer from that host.
    fs::rename(nodes.scratch.path("cluster.key"), nodes.scratch.path("good.key")).unwrap();
    fs::write(nodes.scratch.path("cluster.key"), "another key that is long enough").unwrap();
    nodes.until_shown("another key", 0, &["g1.3 cannot be asked from here: ", "it has another key than this command"]);
    nodes
        .until("g1.3.err", |text| text.contains("refused a connection: a process at ") && text.contains("another key"));
    fs::rename(nodes.scratch.path("good.key"), nodes.scratch.path("cluster.key")).unwrap();
    let shown = nodes.leader(&["show", "--json"]).document("leader-show");
    assert!(shown["members"][0]["standing"]["heard_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{shown:#}");
    let foreign = nodes.leader(&["move", "--to", "g1.1"]);
    assert_eq!(foreign.code, 1);
    assert!(foreign.stderr.contains("`g1.3` leads, and runs on this host, as pid "), "{}", foreign.stderr);
    // The command distinguishes a silent member from one that is down, on any host.
    signal(nodes.children[2].id(), Signal::STOP);
    nodes.until_shown("the others go on", 0, &["g1 works: ", "g1.3 does not answer"]);
    signal(nodes.children[2].id(), Signal::KILL);
    nodes.children[2].wait().unwrap();
    nodes.until_shown("it is down", 0, &["g1 works: ", "g1.3 is down"]);
    signal(nodes.children[1].id(), Signal::KILL);
    nodes.children[1].wait().unwrap();
    nodes.until_shown("no majority", 1, &["g1.2 is down, g1.3 is down"]);
    nodes.until("g1.1.err", |text| text.contains("g1 has lost its majority: 1 of its 3 members are there"));
}

#[test]
fn clients_on_several_hosts_use_separate_client_ids() {
    let mut nodes = Nodes::new(4, "key = \"file:cluster.key\"");
    ["g1.1", "g1.2", "g1.3"].iter().for_each(|name| nodes.start(name));
    nodes.until("g1.1.err", |text| text.contains("all members are connected"));
    let at = |last: u8| {
        let own = network(4).octets();
        Ipv4Addr::new(own[0], own[1], own[2], last).to_string()
    };
    let mut command = stentor();
    command.args(["cast", "--to", "g1", "--json", "--config", &nodes.config(), "--bind", &at(91)]);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    first.stdin.as_mut().unwrap().write_all(b"zero\n").unwrap();
    nodes.until("g1.1.out", |text| text.contains("zero"));
    // The first client is still running, and has the id `c0`.
    let second = nodes.cast(&["--bind", &at(92), "--json"]);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert_eq!(second.document("cast")["client"], "c1");
    let third = nodes.cast(&["--bind", &at(93), "--client", "c0"]);
    assert_eq!(third.code, 2, "{}", third.stderr);
    assert!(third.stderr.contains("is running") && third.stderr.contains("--client"), "{}", third.stderr);
    drop(first.stdin.take());
    assert_eq!(ran(&first.wait_with_output().unwrap()).document("cast")["messages"], 1);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn obstacle_to_a_start_is_named() {
    let nodes = Nodes::new(5, "key = \"file:cluster.key\"");
    let start = ["node", "--id", "g1.1", "--config", &nodes.config()].map(str::to_owned);
    let own = network(5).octets();
    let own = Ipv4Addr::new(own[0], own[1], own[2], 1);
    let _other = std::net::TcpListener::bind((own, 7101)).unwrap();
    // The node waits for a while, reports that, and ends with the reason.
    let refused = run(start.clone());
    let in_the_way = ["error: TCP", "is used by another program", "still in use"];
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    in_the_way.iter().for_each(|part| assert!(refused.stderr.contains(part), "`{part}`: {}", refused.stderr));
    // The command in the remedy matches a listener on this address or on all addresses. It does not match another
    // member with the same port on another address.
    let remedy = format!("`ss -ltnp 'src {own}:7101 or src 0.0.0.0:7101 or src [::]:7101'`");
    assert!(refused.stderr.contains(&remedy), "{}", refused.stderr);
    let bound = |ip: &str| start.clone().into_iter().chain(["--bind", ip].map(str::to_owned));
    run(bound("::1")).refused(&["one is IPv4, the other IPv6"]);
    let capture = nodes.scratch.file("old.pcap", "");
    let capture = ["--pcap", capture.to_str().unwrap()].map(str::to_owned);
    run(start.clone().into_iter().chain(capture)).refused(&["the capture exists already"]);
    let text = fs::read_to_string(nodes.scratch.path("cluster.toml")).unwrap();
    let mixed = nodes.scratch.file("mixed.toml", &text.replace(&format!("{own}:"), "[::1]:"));
    run(["config", "check", mixed.to_str().unwrap()]).refused(&["IPv4 and IPv6", "mixed.toml:14:"]);
    let keyless = nodes.scratch.file("keyless.toml", &text.replace("file:cluster.key", "env:STENTOR_NO_SUCH_KEY"));
    let document = run(["config", "check", keyless.to_str().unwrap(), "--json"]).document("config-check");
    let note = document["notes"][0].as_str().unwrap();
    assert!(note.contains("no process can start here") && note.contains("STENTOR_NO_SUCH_KEY"), "{note}");
    let good = run(["config", "check", &nodes.config(), "--json"]).document("config-check");
    assert_eq!(good["notes"], serde_json::json!([]));
}

/// The host name of g1.3 cannot be resolved. The other members do not need it, because of two members the one with the
/// larger id dials. They report the name nevertheless, instead of only the member's absence.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn unresolvable_host_name_is_reported_as_such() {
    let mut nodes = Nodes::new(14, "key = \"file:cluster.key\"");
    let name = "member3.cluster.invalid:7301";
    let text = fs::read_to_string(nodes.scratch.path("cluster.toml")).unwrap();
    let [a, b, c, _] = network(14).octets();
    nodes.scratch.file("cluster.toml", &text.replace(&format!("{a}.{b}.{c}.3:7301"), name));
    nodes.start("g1.1");
    nodes.start("g1.2");
    for waits in ["g1.1.err", "g1.2.err"] {
        let waiting = format!("waiting for g1.3 ({name}), a name that cannot be resolved here: ");
        let begins =
            format!("begins when all its members are there: the host name of g1.3 ({name}) cannot be resolved");
        nodes.until(waits, |text| text.contains(&waiting) && text.contains(&begins));
        nodes.until(waits, |text| text.contains(&format!("the address of `g1.3` ({name}) cannot be resolved: ")));
        nodes.until(waits, |text| !text.contains("start g1.3"));
    }
    let mend = "mend the name on every host (/etc/hosts, DNS), or write the address into the configuration of all";
    let asked = format!("g1.3 cannot be asked from here: the host name of {name} cannot be resolved here: ");
    nodes.until_shown("its name is not known", 1, &[&asked, mend]);
    let cast = nodes.cast(&["--timeout", "2"]);
    assert_eq!(cast.code, 1, "{}", cast.stderr);
    for part in ["not there after 2s: g1.3; the host name cannot be resolved here of: g1.3", mend] {
        assert!(cast.stderr.contains(part), "`{part}`: {}", cast.stderr);
    }
    let own = run(["node", "--id", "g1.3", "--config", &nodes.config()]);
    own.refused(&["`g1.3` at member3.cluster.invalid:7301", mend, "--bind does not help"]);
}

/// Returns the lines that a process of a broadcast has delivered.
fn delivered(text: &str) -> Vec<String> {
    let event = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let deliveries = text.lines().map(event).filter(|event| event["event"] == "deliver");
    let mut all: Vec<_> = deliveries.map(|event| format!("{} {}", event["sender"], event["payload"])).collect();
    all.sort();
    all
}

#[test]
fn manual_broadcast_delivers_everywhere_and_its_histories_pass() {
    for (of, lossy) in [(6, &[][..]), (7, &["--drop-chance", "0.02"])] {
        let mut nodes = Nodes::sized(of, "key = \"file:cluster.key\"", 4);
        let path = nodes.scratch.path("cluster.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "[neb]\nmode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 1\n").unwrap();
        let names = ["g1.1", "g1.2", "g1.3", "g1.4"];
        for name in names {
            let mut command = stentor();
            command.args(["neb", "run", "--id", name, "--config", &nodes.config()]).args(lossy);
            command.arg("--history").arg(nodes.scratch.path(&format!("{name}.jsonl")));
            nodes.spawn(name, command);
        }
        for child in &mut nodes.children {
            let line = format!("from {}\nand again\n", child.id());
            child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        }
        names.iter().for_each(|name| nodes.until(&format!("{name}.out"), |text| delivered(text).len() == 8));
        let all = names.map(|name| delivered(&fs::read_to_string(nodes.scratch.path(&format!("{name}.out"))).unwrap()));
        assert!(all.iter().all(|other| *other == all[0]), "{all:#?}");
        for child in &mut nodes.children {
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
            assert!(child.wait().unwrap().success());
        }
        let histories = names.map(|name| nodes.scratch.path(&format!("{name}.jsonl")).to_str().unwrap().to_owned());
        let check = ["check", "--complete", "--json"].map(str::to_owned).into_iter().chain(histories);
        let document = run(check).document("check");
        assert_eq!((&document["ok"], &document["properties"]["B1"]), (&true.into(), &"ok".into()), "{document:#}");
    }
}

/// Every process reports the switch and joins the fan-out sets of all four, and the switch copies its lines. When the
/// switch is killed the processes go on by unicast. They use a restarted switch again.
#[test]
fn manual_broadcast_uses_a_switch_and_goes_on_without_it() {
    let mut nodes = Nodes::sized(13, "key = \"file:cluster.key\"", 4);
    let [a, b, c, _] = network(13).octets();
    let (path, switch) = (nodes.scratch.path("cluster.toml"), nodes.scratch.path("switch.toml"));
    let neb = "[neb]\nmode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 1\n";
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{neb}[switch]\ncontrol = \"{a}.{b}.{c}.61:7300\"\n")).unwrap();
    let init = ["switch", "init", "--cluster", &named(13), "--forward", &format!("{a}.{b}.{c}.61"), "--backward"];
    let init = run([&init[..], &[&format!("{a}.{b}.{c}.62"), "-o", switch.to_str().unwrap()]].concat());
    assert_eq!(init.code, 0, "{}", init.stderr);
    let copier = Copier { config: switch, directory: nodes.scratch.path("switch-run") };
    copier.start(&mut nodes, "switch");
    let names = ["g1.1", "g1.2", "g1.3", "g1.4"];
    for name in names {
        let mut command = stentor();
        command.args(["neb", "run", "--id", name, "--config", &nodes.config()]);
        nodes.spawn(name, command);
    }
    names
        .iter()
        .for_each(|name| nodes.until(&format!("{name}.err"), |text| text.contains("is there: one write reaches")));
    copier.until("all sets of all processes", |shown| complete_sets(shown) == 4);
    let mut said = 0;
    let mut say = |nodes: &mut Nodes| {
        for at in 1..=4 {
            said += 1;
            writeln!(nodes.children[at].stdin.as_mut().unwrap(), "line {said}").unwrap();
        }
        names.iter().for_each(|name| nodes.until(&format!("{name}.out"), |text| delivered(text).len() == said));
    };
    // Hosts learn later than the switch that a set is complete. After that, every line is copied to three receivers.
    let mut copies = |nodes: &mut Nodes, what: &str| {
        let since = Instant::now();
        loop {
            let before = copied(&copier.shown());
            say(nodes);
            if copied(&copier.shown()) >= before + 12 {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{what}: {:#}", copier.shown());
        }
    };
    copies(&mut nodes, "with a switch");
    nodes.children[0].kill().unwrap();
    nodes.children[0].wait().unwrap();
    copier.start(&mut nodes, "switch-again");
    copier.until("all sets of all processes, again", |shown| complete_sets(shown) == 4);
    copies(&mut nodes, "with another one");
    let again = nodes.children.len() - 1;
    nodes.children[again].kill().unwrap();
    nodes.children[again].wait().unwrap();
    say(&mut nodes);
}

/// The switch of a test.
struct Copier {
    config: std::path::PathBuf,
    directory: std::path::PathBuf,
}

impl Copier {
    fn start(&self, nodes: &mut Nodes, name: &str) {
        let mut command = stentor();
        command.arg("switch").arg("--config").arg(&self.config).arg("--directory").arg(&self.directory);
        nodes.spawn(name, command);
    }

    fn ask(&self) -> Ran {
        let mut command = stentor();
        command
            .args(["switch", "show", "--json", "--config"])
            .arg(&self.config)
            .arg("--directory")
            .arg(&self.directory);
        ran(&command.output().unwrap())
    }

    fn shown(&self) -> Value {
        let asked = self.ask();
        serde_json::from_str(&asked.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", asked.stdout, asked.stderr))
    }

    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let since = Instant::now();
        loop {
            let asked = self.ask();
            if asked.code == 0 && holds(&serde_json::from_str(&asked.stdout).unwrap()) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "still not: {what}: {}{}", asked.stdout, asked.stderr);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the number of sets that contain all four hosts.
fn complete_sets(shown: &Value) -> usize {
    let ranks = |set: &&Value| set["ranks"].as_array().is_some_and(|ranks| ranks.len() == 4);
    shown["sets"].as_array().unwrap().iter().filter(ranks).count()
}

/// Returns the number of copies so far.
fn copied(shown: &Value) -> u64 {
    shown["passes"]["copied"].as_u64().unwrap_or(0)
}

#[test]
fn restarted_broadcast_process_is_refused() {
    let mut nodes = Nodes::sized(11, "key = \"file:cluster.key\"", 4);
    let path = nodes.scratch.path("cluster.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "[neb]\nmode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 1\n").unwrap();
    let start = |nodes: &mut Nodes, name: &str, life: &str| {
        let mut command = stentor();
        command.args(["neb", "run", "--id", name, "--config", &nodes.config()]);
        nodes.spawn(life, command);
    };
    let names = ["g1.1", "g1.2", "g1.3", "g1.4"];
    names.iter().for_each(|name| start(&mut nodes, name, name));
    let line = |nodes: &mut Nodes, of: usize, text: &str| {
        writeln!(nodes.children[of].stdin.as_mut().unwrap(), "{text}").unwrap();
        nodes.until("g1.2.out", |out| out.contains(text));
    };
    line(&mut nodes, 0, "before");
    line(&mut nodes, 3, "of the one that dies");
    nodes.children[3].kill().unwrap();
    nodes.children[3].wait().unwrap();
    start(&mut nodes, "g1.4", "again");
    // The new process has lost the registers that the others rely on.
    let parts =
        ["refused a connection", "g1.4", "an earlier start of this process", "stop all processes and start them anew"];
    nodes.until("again.err", |err| err.lines().any(|line| parts.iter().all(|part| line.contains(part))));
    line(&mut nodes, 0, "after");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn process_without_the_key_is_refused() {
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
    run(config(&good)).refused(&["`g1.1` of cluster ", "is running already, as pid ", "stentor stop --config"]);
    // The address is in use for the whole test.
    let text = fs::read_to_string(good.scratch.path("cluster.toml")).unwrap().replace("\"hand-", "\"other-");
    let another = good.scratch.file("another.toml", &text);
    let refused = run(["node", "--id", "g1.1", "--config", another.to_str().unwrap()]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    for part in ["still in use", "waits up to 5 s", "is in use by another process", "--bind"] {
        assert!(refused.stderr.contains(part), "`{part}`: {}", refused.stderr);
    }
    let other = Nodes::new(2, "key = \"file:cluster.key\"");
    fs::write(other.scratch.path("cluster.key"), "another key that is long enough").unwrap();
    let own = network(2).octets();
    let own = Ipv4Addr::new(own[0], own[1], own[2], 98).to_string();
    let since = Instant::now();
    let cast = other.cast(&["--bind", &own, "--timeout", "60"]);
    assert_eq!(cast.code, 2, "waiting cannot help: {}", cast.stderr);
    assert!(since.elapsed() < PATIENCE, "it fails at once, not after its timeout");
    // Only the error reports the refusal, so that a user reads it once.
    assert!(!cast.stderr.contains("refused a connection"), "{}", cast.stderr);
    let error = cast.stderr.lines().find(|line| line.starts_with("error: ")).expect("an error");
    assert!(error.ends_with(": they have another key than this process: give all the same"), "{error}");
    for n in 1..=3 {
        let at = format!("g1.{n} at {}.{}.{}.{n}:7{n}01", own_network(2)[0], own_network(2)[1], own_network(2)[2]);
        assert_eq!(error.matches(&at).count(), 1, "{error}");
    }
    // The members also report it once, although they refused the client many times.
    std::thread::sleep(Duration::from_secs(1));
    good.until("g1.1.err", |text| {
        text.matches(&format!("a process at {own} that calls itself c0: it has")).count() == 1
    });
}

/// A member whose configuration differs from that of all others ends at once and reports the difference. The majority
/// continues.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn member_refused_by_a_majority_ends_and_both_sides_name_each_other() {
    let mut nodes = Nodes::new(12, "key = \"file:cluster.key\"");
    let text = fs::read_to_string(nodes.scratch.path("cluster.toml")).unwrap();
    nodes.scratch.file("strange.toml", &text.replace("window = 16", "window = 8"));
    // A member without peers reports which ones it waits for.
    nodes.start("g1.2");
    let at =
        |n: u8| format!("g1.{n} ({}.{}.{}.{n}:7{n}01)", own_network(12)[0], own_network(12)[1], own_network(12)[2]);
    let waits = format!("g1.2: waiting for {}, {}", at(1), at(3));
    nodes.until("g1.2.err", |text| text.contains(&waits));
    nodes.start("g1.3");
    nodes.until("g1.3.err", |text| text.contains(&format!("waiting for {}\n", at(1))));
    let mut strange = stentor();
    strange.args(["node", "--id", "g1.1", "--config"]).arg(nodes.scratch.path("strange.toml")).arg("--directory");
    strange.arg(nodes.scratch.path("run"));
    nodes.spawn("g1.1", strange);
    nodes.until("g1.1.err", |text| text.contains("error: "));
    let ended = nodes.children[2].wait().unwrap();
    let said = fs::read_to_string(nodes.scratch.path("g1.1.err")).unwrap();
    assert_eq!(ended.code(), Some(2), "{said}");
    let fingerprint = |file: &str| {
        let file = nodes.scratch.path(file);
        let checked = run(["config".as_ref(), "check".as_ref(), "--json".as_ref(), file.as_os_str()]);
        serde_json::from_str::<Value>(&checked.stdout).unwrap()["fingerprint"].as_str().unwrap().to_owned()
    };
    let [strange, common] = ["strange.toml", "cluster.toml"].map(fingerprint);
    let differ =
        format!(": they have configuration {common}, this process has {strange}: some of these settings differ: ");
    let error = said.lines().find(|line| line.starts_with("error: ")).expect("an error");
    assert!(error.contains(&differ) && !said.contains("refused a connection"), "{said}");
    for n in [2, 3] {
        assert!(error.contains(&format!("g1.{n} at ")), "{error}");
        let text = fs::read_to_string(nodes.scratch.path(&format!("g1.{n}.err"))).unwrap();
        let told = |line: &&str| line.contains("refused a connection: g1.1 at ") && line.contains(&strange);
        assert_eq!(text.lines().filter(told).count(), 1, "{text}");
        assert!(nodes.children[n - 2].try_wait().unwrap().is_none(), "{text}");
    }
    // With the same configuration all members begin.
    nodes.start("g1.1");
    nodes.until("g1.1.err", |text| text.contains("all members are connected"));
}

/// Returns the octets of a test's network address.
fn own_network(of: u8) -> [u8; 4] {
    network(of).octets()
}

#[test]
fn meaningless_options_are_refused() {
    run(["demo", "--drop-chance", "0.5"]).refused(&["on shared memory", "--fabric roce"]);
    let scratch = Scratch::new();
    let path = scratch.path("cluster.toml");
    assert_eq!(run(["config", "init", "--fabric", "roce", "-o", path.to_str().unwrap()]).code, 0);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("fabric  = \"roce\"") && text.contains("127.1.2.3"), "{text}");
    assert_eq!(run(["config".as_ref(), "check".as_ref(), Path::new(&path).as_os_str()]).code, 0);
}

/// A node waits for a port that a terminating process still holds, and reports the wait.
#[test]
fn start_waits_for_a_port_that_is_being_released() {
    let mut nodes = Nodes::new(10, "key = \"file:cluster.key\"");
    let own = network(10).octets();
    let other = std::net::TcpListener::bind((Ipv4Addr::new(own[0], own[1], own[2], 1), 7101)).unwrap();
    nodes.start("g1.1");
    nodes.until("g1.1.err", |text| text.contains(":7101 is still in use") && text.contains("waits up to 5 s"));
    drop(other);
    nodes.until("g1.1.err", |text| text.contains("memory, fixed from here on"));
}

/// A member that is started right after `kill -9` of its predecessor always comes up.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn members_restart_at_once_after_a_kill() {
    let mut nodes = Nodes::new(9, "key = \"file:cluster.key\"");
    ["g1.1", "g1.2", "g1.3"].iter().for_each(|name| nodes.start(name));
    nodes.until("g1.3.err", |text| text.contains("all members are connected"));
    for pause in [Duration::ZERO, Duration::from_millis(200)] {
        for round in 0..20 {
            let mut last = nodes.children.pop().expect("g1.3");
            last.kill().unwrap();
            if !pause.is_zero() {
                last.wait().unwrap();
                std::thread::sleep(pause);
            }
            nodes.start("g1.3");
            nodes.until("g1.3.err", |text| {
                assert!(!text.contains("error:"), "round {round}, {pause:?}: {text}");
                text.contains("all members are connected")
            });
            last.wait().unwrap();
        }
    }
}
