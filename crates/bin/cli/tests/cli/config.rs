//! Tests of `stentor config init` and `stentor config check`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Scratch, ran, run, stentor};

const GROUP: &str = "[[group]]\nid = \"g1\"\nprocess = [ { id = \"g1.1\", address = \"127.0.0.1:7101\" } ]\n";

#[test]
fn check_accepts_the_file_of_init() {
    let scratch = Scratch::new();
    let file = scratch.path("cluster.toml");
    let path = file.to_str().unwrap();
    let init = run(["config", "init", "--groups", "3", "--replicas", "5", "--cluster", "spine", "-o", path]);
    assert_eq!((init.code, init.stderr.as_str()), (0, ""));
    let check = run(["config", "check", path]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    for part in
        ["cluster spine on shm", "g3     5          3", "p14      g3.5", "p15–p30  c0–c15", "all processes together: "]
    {
        assert!(check.stdout.contains(part), "`{part}` is not in:\n{}", check.stdout);
    }
    let document = run(["config", "check", path, "--json"]).document("config-check");
    assert_eq!(document["processes"].as_array().unwrap().len(), 15 + 16);
    assert_eq!(document["groups"][2]["majority"], 3);
    assert_eq!(document["processes"][3]["name"], "g1.4");
    let memory = &document["memory"];
    let of_all = |process: &Value| process["processes"].as_u64().unwrap() * process["bytes"].as_u64().unwrap();
    let all: u64 = memory["processes"].as_array().unwrap().iter().map(of_all).sum();
    assert_eq!(memory["total_bytes"], all);
    assert_eq!(memory["processes"][0]["processes"], 15);
    assert_eq!(memory["processes"][1]["processes"], 16);
}

#[test]
fn init_does_not_overwrite_unless_forced() {
    let scratch = Scratch::new();
    let file = scratch.file("cluster.toml", "mine");
    let path = file.to_str().unwrap();
    run(["config", "init", "-o", path]).refused(&["the file exists already", path, "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let forced = run(["config", "init", "-o", path, "--force", "--json"]);
    assert_eq!(forced.code, 0);
    assert_eq!(forced.document("config-init")["groups"], 2);
    assert_eq!(run(["config", "check", path]).code, 0);
}

#[test]
fn init_refuses_options_that_check_refuses_and_writes_no_file() {
    let scratch = Scratch::new();
    let file = scratch.path("cluster.toml");
    let path = file.to_str().unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["--groups", "0"], "the cluster has no group"),
        (&["--groups", "257"], "257 groups: at most 256"),
        (&["--replicas", "65"], "65 processes: at most 64"),
        (&["--groups", "1000000000000"], "at most 256"),
        (&["--cluster", "a\"b"], "is not a valid name"),
    ];
    for (args, problem) in cases {
        let args = [&["config", "init", "-o", path], args].concat();
        run(args).refused(&[problem]);
        assert!(!file.exists());
    }
    run(["config", "init", "-o", "/no/such/place/cluster.toml"]).refused(&["cannot write", "/no/such/place"]);
}

#[test]
fn every_bad_file_is_refused_with_its_line_and_a_remedy() {
    let head = "cluster = \"x\"\nfabric = \"shm\"\n";
    let with = |line: &str| format!("{head}{line}\n{GROUP}");
    let process = |id: &str| format!("{{ id = \"{id}\", address = \"127.0.0.1:7102\" }}");
    let group = |id: &str, processes: &str| format!("{head}{GROUP}[[group]]\nid = \"{id}\"\nprocess = [{processes}]\n");
    let cases = [
        (with("colour = 1"), ":3:1", "unknown key `colour`", "known here: cluster, fabric"),
        (with("[limits]\nwindows = 1"), ":4:1", "unknown key `windows`", "message_bytes"),
        (with("[limits]\nmessage_bytes = 20000000"), ":4:17", "limits.message_bytes = 20000000 is outside", "16777216"),
        (with("[limits]\nwindow = 3"), ":4:10", "not a power of two", "use 2 or 4"),
        (with("[limits]\nclients = 5000"), ":4:11", "limits.clients = 5000 is outside", "from 1 to 1024"),
        (with("[election]\nkind = \"zookeeper\""), ":4:8", "not in this version", "heartbeat"),
        (with("key = \"hunter2\""), ":3:7", "where it is, not what it is", "env:NAME"),
        (with("fabric = \"shm\""), ":3:1", "duplicate key", "correct this line"),
        (
            head.replace("shm", "ofi:tcp") + GROUP,
            ":2:10",
            "fabric `ofi:tcp` names a provider",
            "provider = \"tcp\" in [ofi]",
        ),
        (with("[ofi]\nprovider = \"a b\""), ":4:12", "no provider of libfabric is called `a b`", "stentor doctor"),
        (head.replace("shm", "pigeon") + GROUP, ":2:10", "unknown fabric `pigeon`", "`shm`, `roce`, `verbs`, `ofi` or"),
        (GROUP.to_owned(), ":1:1", "the key `cluster` is missing", "add `cluster"),
        (head.to_owned(), ":2:15", "the cluster has no group", "add a [[group]]"),
        (group("g1", &process("g2.1")), ":7:6", "duplicate group id `g1`: the first is in line 4", "its own group id"),
        (group("g2", &process("g1.1")), ":8:19", "duplicate process id `g1.1`", "its own process id"),
        (group("g2", ""), ":8:11", "group `g2` has no process", "list its processes"),
        (group("g2", &process("c0")), ":8:19", "the name of a client id", "not `c` and a number"),
        (
            group("g2", &process("x").replace("127.0.0.1:7102", "nowhere")),
            ":8:34",
            "bad address `nowhere`",
            "host:port",
        ),
        ("cluster = ".to_owned(), ":1:", "not valid TOML", "correct this line"),
    ];
    let scratch = Scratch::new();
    for (text, place, problem, remedy) in &cases {
        let file = scratch.file("cluster.toml", text);
        let ran = run(["config", "check", file.to_str().unwrap()]);
        ran.refused(&[&format!("cluster.toml{place}"), problem, remedy]);
        assert!(!ran.stderr.contains("hunter2"), "a secret was printed");
    }
}

#[test]
fn missing_file_and_binary_file_are_refused() {
    let scratch = Scratch::new();
    let absent = scratch.path("absent.toml");
    run(["config", "check", absent.to_str().unwrap()]).refused(&["absent.toml", "stentor config init"]);
    run(["config", "check", "/"]).refused(&["cannot read the configuration"]);
    let binary = scratch.path("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
    run(["config", "check", binary.to_str().unwrap()]).refused(&["UTF-8"]);
}

#[test]
fn notes_list_unused_and_ineffective_settings() {
    let scratch = Scratch::new();
    let two =
        "[[group]]\nid = \"g2\"\nprocess = [ { id = \"a\", address = \"a:1\" }, { id = \"b\", address = \"b:1\" } ]\n";
    let text = format!("cluster = \"x\"\nfabric = \"shm\"\nkey = \"file:secret\"\n{GROUP}{two}");
    let file = scratch.file("cluster.toml", &text);
    let document = run(["config", "check", file.to_str().unwrap(), "--json"]).document("config-check");
    let notes = document["notes"].as_array().unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].as_str().unwrap().contains("`key` is not used on shm"));
    assert!(notes[1].as_str().unwrap().contains("`g2`: 2 processes survive no more failures than 1"));
}

#[test]
fn init_creates_a_required_key_and_keeps_an_existing_one() {
    let scratch = Scratch::new();
    let (config, key) = (scratch.path("cluster.toml"), scratch.path("cluster.key"));
    let init =
        |fabric: &str| run(["config", "init", "--force", "--json", "--fabric", fabric, "-o", config.to_str().unwrap()]);
    let shm = init("shm").document("config-init");
    assert!(shm.get("key").is_none() && !key.exists(), "{shm:#}");
    for fabric in ["roce", "ofi", "verbs"] {
        let made = init(fabric).document("config-init");
        assert_eq!(made["key"], key.to_str().unwrap(), "{fabric}");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&key).unwrap();
        assert_eq!(text.len(), 64, "{fabric}");
        init(fabric);
        assert_eq!(fs::read_to_string(&key).unwrap(), text, "another host may have the key");
        fs::remove_file(&key).unwrap();
    }
}

#[test]
fn configuration_is_found_without_an_option() {
    let scratch = Scratch::new();
    let named = scratch.path("named.toml");
    for (name, cluster) in [("cluster.toml", "here"), ("named.toml", "there")] {
        let path = scratch.path(name);
        assert_eq!(run(["config", "init", "--cluster", cluster, "-o", path.to_str().unwrap()]).code, 0);
    }
    let checked = |command: &mut Command| {
        let command = command.args(["config", "check", "--json"]).current_dir(scratch.path(""));
        ran(&command.output().unwrap()).document("config-check")["cluster"].clone()
    };
    assert_eq!(checked(&mut stentor()), "here");
    assert_eq!(checked(stentor().env("STENTOR_CONFIG", &named)), "there");
    // All commands look in the default place, and report it.
    let empty = scratch.path("empty");
    fs::create_dir(&empty).unwrap();
    for command in [
        &["config", "check"][..],
        &["node", "--id", "g1.1"],
        &["cast", "--to", "g1"],
        &["leader", "show"],
        &["leader", "move", "--to", "g1.2"],
        &["stop"],
        &["neb", "run", "--id", "p1"],
        &["neb", "remove", "--id", "p1"],
    ] {
        let absent = |command: &mut Command| ran(&command.current_dir(&empty).stdin(Stdio::null()).output().unwrap());
        absent(stentor().args(command)).refused(&["cannot read the configuration", "cluster.toml"]);
        absent(stentor().args(command).env("STENTOR_CONFIG", "/none.toml")).refused(&["/none.toml"]);
    }
}
