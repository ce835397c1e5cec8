//! Members that have another key than the others.

use std::fs;

use crate::roce::Nodes;
use crate::support::run;

/// Two hosts can be compared without showing their keys, and a process that waits for a member with another key reports
/// that.
#[test]
fn wrong_key_is_named_by_its_file_and_fingerprint_and_by_waiting_members() {
    let mut nodes = Nodes::new(15, "key = \"file:cluster.key\"");
    let text = fs::read_to_string(nodes.scratch.path("cluster.toml")).unwrap();
    nodes.scratch.file("old.toml", &text.replace("cluster.key", "old.key"));
    nodes.scratch.file("old.key", "another key that is long enough");
    let fingerprint = |file: &str| {
        let file = nodes.scratch.path(file);
        let checked = run(["config".as_ref(), "check".as_ref(), "--json".as_ref(), file.as_os_str()]);
        checked.document("config-check")["key_fingerprint"].as_str().expect("a fingerprint").to_owned()
    };
    let [old, good] = ["old.toml", "cluster.toml"].map(fingerprint);
    assert_ne!(old, good);
    nodes.start("g1.1");
    nodes.start("g1.2");
    nodes.until("g1.1.err", |text| text.contains(&format!("cluster.key (fingerprint {good})\n")));
    nodes.until("g1.2.err", |text| text.contains("waiting for g1.3"));
    let config = nodes.scratch.path("old.toml");
    let ended = run(["node", "--id", "g1.3", "--config", config.to_str().unwrap()]);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    let error = ended.stderr.lines().find(|line| line.starts_with("error: ")).expect("an error");
    let own = format!("(this process has key file {} (fingerprint {old}))", nodes.scratch.path("old.key").display());
    assert!(error.contains("they have another key than this process") && error.ends_with(&own), "{error}");
    for waits in ["g1.1.err", "g1.2.err"] {
        let refused = |line: &str| line.contains("waiting for g1.3 (") && line.contains("; g1.3 was refused ");
        let refused = |line: &str| {
            refused(line) && line.ends_with(" s ago: it has another key than this process: give all the same")
        };
        nodes.until(waits, |text| text.lines().any(refused));
    }
}
