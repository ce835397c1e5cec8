//! Tests that run the demonstration and single commands with real processes.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use stentor_testutil::TempDir;

fn bank(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
    command.args(words);
    command
}

/// Runs a demonstration of 600 transfers with kills. Returns its output.
fn demo(words: &[&str]) -> String {
    let Output { status, stdout, .. } =
        bank(&["demo"]).args(words).stderr(Stdio::inherit()).output().expect("the program runs");
    let text = String::from_utf8_lossy(&stdout).into_owned();
    println!("{text}");
    assert!(status.success(), "{status}");
    for words in ["is killed", "is started again", "started again with its journal", "8000 of 8000; 0 cuts were wrong"]
    {
        assert!(text.contains(words), "{words}");
    }
    assert!(text.contains("transfers  600 in "));
    text
}

#[test]
fn sum_stays_while_a_leader_and_a_client_are_killed() {
    demo(&["--kills", "--transfers", "600"]);
}

#[test]
fn sum_stays_over_roce_too() {
    let text = demo(&["--kills", "2", "--transfers", "600", "--fabric", "roce"]);
    assert!(text.contains("which led g1, is killed") && text.contains("which led g2, is killed"), "one of each group");
}

/// A node process that is killed when the test drops it.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = bank(words).current_dir(directory).output().expect("the program runs");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn commands_do_one_step_each() {
    let directory = TempDir::new();
    let member = |group: u32, n: u32| format!("{{ id = \"g{group}.{n}\", address = \"127.0.{group}.{n}:7101\" }}, ");
    let group = |group: u32| {
        let members: String = (1..=3).map(|n| member(group, n)).collect();
        format!("[[group]]\nid = \"g{group}\"\nprocess = [ {members} ]\n")
    };
    let text = format!("cluster = \"bank\"\nfabric = \"shm\"\n{}{}", group(1), group(2));
    directory.file("cluster.toml", text);
    let sockets = directory.to_str().expect("a path in ASCII");
    let names = ["g1.1", "g1.2", "g1.3", "g2.1", "g2.2", "g2.3"];
    let node = |name| {
        let mut command = bank(&["node", name, "--sockets", sockets]);
        Node(
            command
                .current_dir(&directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("the node starts"),
        )
    };
    let _nodes = names.map(node);
    let run = |words: &[&str]| said(&directory, &[words, &["--sockets", sockets]].concat());
    for (words, code, says) in [
        (&["open", "4", "100"][..], 0, "account 4 of g1: 100"),
        (&["open", "4"], 2, "already"),
        (&["open", "7"], 0, "account 7 of g2: 0"),
        (&["transfer", "4", "7", "30"], 0, "30 went from account 4 to account 7"),
        (&["transfer", "4", "7", "71"], 2, "the account has 70"),
        (&["transfer", "4", "9", "1"], 2, "no account 9"),
        (&["withdraw", "7", "10"], 0, "account 7 of g2: 20"),
        (&["sum"], 0, "sum: 90"),
        (&["finish", "--older-than", "0s"], 0, "0 transfers were settled, 0 taken back"),
        (&["sum", "--config", "none.toml"], 2, "none.toml"),
    ] {
        let (found, text) = run(words);
        assert!(found == Some(code) && text.contains(says), "{words:?}: {found:?}, {text}");
    }
}
