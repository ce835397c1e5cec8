//! The README's program: three nodes and clients are processes, and the leader is killed between two calls.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stentor_testutil::TempDir;

const CONFIG: &str = r#"
cluster = "counter"
fabric = "shm"
[election]
kind = "heartbeat"
timeout_min_ms = 400
timeout_max_ms = 800
[[group]]
id = "g1"
process = [
  { id = "g1.1", address = "127.0.0.1:7101" },
  { id = "g1.2", address = "127.0.0.2:7101" },
  { id = "g1.3", address = "127.0.0.3:7101" },
]
"#;

/// A node, which is killed when this is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of the example, beside this test program.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program");
    let built = own.ancestors().nth(2).expect("the test program lies in `deps`").join("examples/counter");
    assert!(built.exists(), "{} is needed: cargo build -p stentor --examples", built.display());
    built
}

fn counter(directory: &Path) -> Command {
    let mut command = Command::new(program());
    command.current_dir(directory).env("XDG_RUNTIME_DIR", directory);
    command
}

fn node(directory: &Path, name: &str) -> Node {
    Node(counter(directory).arg(name).stdout(Stdio::null()).spawn().expect("the node's program starts"))
}

/// Adds 5. Returns the new value of the counter.
fn add(directory: &Path) -> i64 {
    let out = counter(directory).output().expect("the counter's program runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    let sum = text.split_whitespace().next().and_then(|word| word.parse().ok());
    sum.unwrap_or_else(|| panic!("no number: {text}"))
}

#[test]
fn the_counter_counts_each_command_once_while_leaders_are_killed() {
    let directory = TempDir::new();
    std::fs::write(directory.join("cluster.toml"), CONFIG).expect("the directory can be written");
    let mut nodes: Vec<_> = ["g1.1", "g1.2", "g1.3"].map(|name| Some(node(&directory, name))).into();
    let mut sum = 0;
    let mut adds = |times: usize| {
        for _ in 0..times {
            sum += 5;
            assert_eq!(add(&directory), sum);
        }
    };
    adds(3);
    // This node is the first leader.
    nodes[0] = None;
    adds(5);
    nodes[0] = Some(node(&directory, "g1.1"));
    adds(3);
}
