//! Tests of clients with large messages and small rings on RoCEv2, while packets are lost.

use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Scratch, ran, stentor};

const MEMBERS: [&str; 3] = ["g1.1", "g1.2", "g1.3"];
const CLIENTS: usize = 3;
const LINES: usize = 800;
/// Upper bound of the time that the members need to deliver the remaining messages after the clients have finished.
const PATIENCE: Duration = Duration::from_secs(20);

/// Members that are killed at the end of the test.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the number of messages that a member delivered or restored from another member's state.
fn reached(text: &str) -> u64 {
    let line = |text: &str| serde_json::from_str::<Value>(text).ok();
    let number = |line: Value| line["n"].as_u64().or(line["restored"]["n"].as_u64());
    text.lines().last().and_then(line).and_then(number).unwrap_or(0)
}

/// Returns the lines of one client, which are nearly empty, short, or as long as an eighth of a ring.
fn lines(client: usize) -> String {
    (0..LINES).map(|n| format!("{n} {}\n", "x".repeat([0, 50, 1900][(n * 7 + client + n / 5) % 3]))).collect()
}

/// A member may receive a body from another member before the client's own write is repeated. The body's space in the
/// client's ring must be credited all the same. Otherwise each client stalls within some hundred messages.
#[test]
fn clients_with_small_rings_go_on_while_packets_are_lost() {
    let scratch = Scratch::new();
    let [a, b, c, _] = Ipv4Addr::new(127, 199, std::process::id() as u8, 0).octets();
    let member = |n| format!("{{ id = \"g1.{n}\", address = \"{a}.{b}.{c}.{n}:7{n}01\" }}");
    let members = (1..=3).map(member).collect::<Vec<_>>().join(", ");
    let limits = "message_bytes = 4096\nwindow = 16\nclients = 6\nring_kib = 64\nbody_ring_kib = 16";
    let text = format!(
        "cluster = \"rings\"\nfabric = \"roce\"\nkey = \"file:cluster.key\"\n[election]\nkind = \"heartbeat\"\n\
         [limits]\n{limits}\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n"
    );
    scratch.file("cluster.key", "0123456789abcdef0123456789abcdef\n");
    let config = scratch.file("cluster.toml", &text);
    let command = |name: &str, what: &[&str]| {
        let mut command = stentor();
        command.args(what).arg("--config").arg(&config).arg("--directory").arg(scratch.path("run"));
        command.args(["--drop-chance", "0.01", "--seed", &name.len().to_string()]).stdin(Stdio::piped());
        command
    };
    let mut nodes = Nodes(Vec::new());
    for name in MEMBERS {
        let create = |end: &str| File::create(scratch.path(&format!("{name}.{end}"))).unwrap();
        let mut node = command(name, &["node", "--id", name]);
        nodes.0.push(node.stdout(create("out")).stderr(create("err")).spawn().unwrap());
    }
    let clients = (0..CLIENTS).map(|client| {
        let name = format!("c{client}");
        let mut cast = command(&name, &["cast", "--to", "g1", "--client", &name]);
        let mut cast = cast.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = cast.stdin.take().unwrap();
        // If the command ends before it has read its whole input, its exit code shows why.
        let writer = std::thread::spawn(move || drop(input.write_all(lines(client).as_bytes())));
        (writer, cast)
    });
    for (writer, cast) in clients.collect::<Vec<_>>() {
        let cast = ran(&cast.wait_with_output().unwrap());
        writer.join().unwrap();
        assert_eq!(cast.code, 0, "{}", cast.stderr);
    }
    let since = Instant::now();
    for name in MEMBERS {
        let all = (CLIENTS * LINES) as u64;
        let told = || reached(&fs::read_to_string(scratch.path(&format!("{name}.out"))).unwrap());
        while told() < all {
            assert!(since.elapsed() < PATIENCE, "{name} delivered {} of {all}", told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
