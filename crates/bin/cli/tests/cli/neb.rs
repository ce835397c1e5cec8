//! Tests of `stentor sim neb`, `demo --neb`, `bench neb` and `neb run`, and of `check` on the history of a broadcast.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Scratch, ran, run, signal, stentor};

#[test]
fn simulation_run_of_the_broadcast_reports_its_seeds() {
    let document = run(["sim", "neb", "--seeds", "0..6", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["violations"]), (&true.into(), &0.into()), "{document:#}");
    assert!(document["counts"]["suspicions"].is_u64(), "{document:#}");
    let one = run(["sim", "neb", "--seed", "3", "--json"]).document("sim");
    assert!(one["scenario"]["profile"].is_string() && one["properties"]["B1"] == "ok", "{one:#}");
}

#[test]
fn five_processes_agree_although_one_lies_and_show_the_evidence() {
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let keep = keep.to_str().unwrap();
    let ran = run(["demo", "--neb", "--json", "--messages-limit", "80", "--keep", keep]);
    let document = ran.document("demo-neb");
    assert_eq!((ran.code, &document["ok"]), (0, &true.into()), "{document:#}");
    assert!(document["evidence"].as_array().unwrap().iter().any(|evidence| evidence["proven"] == true));
    let histories: Vec<String> = [0, 1, 2, 4].iter().map(|process| format!("{keep}/p{process}.jsonl")).collect();
    let mut arguments = vec!["check", "--complete", "--json"];
    arguments.extend(histories.iter().map(String::as_str));
    let document = run(arguments).document("check");
    assert_eq!(document["properties"]["B1"], "ok", "{document:#}");
    assert_eq!(document["counts"]["broadcasts"], 80, "{document:#}");
}

#[test]
fn bench_of_the_broadcast_has_a_bound_for_each_row() {
    let ran = run(["bench", "neb", "-n", "700", "--signed", "--window", "8", "--json"]);
    let document = ran.document("bench");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{document:#}");
    assert!(rows.iter().all(|row| row["bound"]["value"].as_f64().unwrap() > 0.0), "{document:#}");
}

#[test]
fn no_lie_of_a_process_splits_or_stops_the_others() {
    let told = [
        "rewrite",
        "kill",
        "half",
        "old-laps",
        "overrun",
        "host",
        "garbage",
        "torn",
        "gap",
        "too-long",
        "silent",
        "two-values,rewrite,kill,half,old-laps,overrun,own-host,host,garbage",
    ];
    for lies in told {
        // The run is long enough for every lie to be injected.
        let document = run(["demo", "--neb", "--json", "--messages-limit", "600", "--lies", lies]).document("demo-neb");
        assert_eq!(document["ok"], true, "{lies}: {document:#}");
        assert_eq!(document["broadcasts"], 600, "{lies}: {document:#}");
        if lies.contains("kill") {
            assert!(document["refused"].as_u64().unwrap() > 0, "{lies}: {document:#}");
        }
        let own = document["deliveries"].as_u64().unwrap();
        assert!(own >= 600 * 4, "{lies}: {document:#}");
    }
}

#[test]
fn unknown_lie_is_refused_with_the_known_names() {
    let ran = run(["demo", "--neb", "--lies", "white"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("no lie is called `white`") && ran.stderr.contains("garbage"), "{}", ran.stderr);
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn stopped_process_delays_the_others_and_no_message_is_lost() {
    const MESSAGES: u64 = 6000;
    let scratch = Scratch::new();
    let keep = scratch.path("histories");
    let mut command = stentor();
    command.args(["demo", "--neb", "--json", "--messages-limit", &MESSAGES.to_string(), "--keep"]).arg(&keep);
    let demo = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stopped, other) = (keep.join("p0.jsonl"), keep.join("p1.jsonl"));
    let begin = Instant::now();
    while lines(&stopped) < 50 {
        assert!(begin.elapsed() < Duration::from_secs(300), "nothing happens");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The first child is p0.
    let victim = children(demo.id())[0];
    signal(victim, Signal::STOP);
    std::thread::sleep(Duration::from_millis(1_000));
    let after = lines(&other);
    std::thread::sleep(Duration::from_millis(1_500));
    let later = lines(&other);
    signal(victim, Signal::CONT);
    let document = ran(&demo.wait_with_output().unwrap()).document("demo-neb");
    assert_eq!(document["ok"], true, "{document:#}");
    assert_eq!(document["broadcasts"], MESSAGES, "{document:#}");
    // A late process may skip an index at which the liar has no single value. It skips no message of an honest sender.
    let honest = ["p0", "p1", "p2", "p3", "p4"].into_iter().filter(|process| document["liar"] != *process);
    for process in honest {
        let path = keep.join(format!("{process}.jsonl"));
        let text = std::fs::read_to_string(&path).unwrap();
        for skip in text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
            assert!(skip["e"] != "skip" || skip["s"] == document["liar"], "{}: {skip}", path.display());
        }
    }
    // The process was stopped in the middle of the run, and the others waited for it.
    assert!(after == later && later < lines(&other), "{after} and {later} of {} events", lines(&other));
}

/// Configures a cluster of four processes that broadcast. Returns the configuration and the files of their secret keys.
fn four_processes(scratch: &Scratch) -> (std::path::PathBuf, Vec<std::path::PathBuf>) {
    let init = ["config", "init", "--groups", "1", "--replicas", "4", "-o"].map(str::to_owned);
    let file = scratch.path("cluster.toml");
    assert_eq!(run(init.iter().map(String::as_str).chain([file.to_str().unwrap()])).code, 0);
    let secrets: Vec<_> = (1..=4).map(|n| scratch.path(&format!("g1.{n}.key"))).collect();
    let key = |secret: &std::path::PathBuf| run(["neb", "key", secret.to_str().unwrap()]).stdout.trim().to_owned();
    let keys = secrets.iter().zip(1..).map(|(secret, n)| format!("\"g1.{n}\" = \"{}\"", key(secret)));
    let keys: Vec<_> = keys.collect();
    assert_eq!(key(&secrets[0]), key(&secrets[0]), "an existing key is not replaced");
    let text = std::fs::read_to_string(&file).unwrap();
    let neb = format!("\n[neb]\nfault_model = \"lying-hosts\"\npayload_bytes = 64\nkeys = {{ {} }}\n", keys.join(", "));
    std::fs::write(&file, text + &neb).unwrap();
    (file, secrets)
}

fn process(scratch: &Scratch, file: &Path, n: usize, secret: &Path) -> Command {
    let mut command = stentor();
    command.args(["neb", "run", "--id", &format!("g1.{n}"), "--config"]).arg(file).arg("--secret").arg(secret);
    command.arg("--directory").arg(scratch.path("sockets")).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

#[test]
fn four_configured_processes_broadcast_their_input() {
    use std::io::{BufRead, BufReader, Write};
    let scratch = Scratch::new();
    let (file, secrets) = four_processes(&scratch);
    assert_eq!(run(["config", "check", file.to_str().unwrap()]).code, 0);
    let mut children: Vec<_> = (1..=4).map(|n| process(&scratch, &file, n, &secrets[n - 1]).spawn().unwrap()).collect();
    for (n, child) in children.iter_mut().enumerate() {
        writeln!(child.stdin.as_mut().unwrap(), "first of {n}\nsecond of {n}").unwrap();
    }
    for child in &mut children {
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines: Vec<String> = out.lines().take(8).map(Result::unwrap).collect();
        for n in 0..4 {
            let told = |index, text: &str| {
                format!(r#"{{"event":"deliver","sender":"g1.{}","index":{index},"payload":"{text} of {n}"}}"#, n + 1)
            };
            let at = |line: String| {
                lines.iter().position(|told| *told == line).unwrap_or_else(|| panic!("{line}: {lines:?}"))
            };
            assert!(at(told(0, "first")) < at(told(1, "second")));
        }
    }
    for child in &mut children {
        signal(child.id(), Signal::TERM);
    }
    assert!(children.into_iter().all(|mut child| child.wait().unwrap().success()));
}

#[test]
fn long_line_is_refused_and_bytes_that_are_not_utf_8_are_printed_as_hex() {
    use std::io::{BufRead, BufReader, Read, Write};
    let scratch = Scratch::new();
    let (file, secrets) = four_processes(&scratch);
    let mut children: Vec<_> = (1..=4).map(|n| process(&scratch, &file, n, &secrets[n - 1]).spawn().unwrap()).collect();
    let mut input = children[0].stdin.take().unwrap();
    let long = "x".repeat(65);
    input.write_all(b"before\n\xff\n").unwrap();
    write!(input, "{long}\n{}\n", &long[1..]).unwrap();
    // This line is longer than all buffers that it passes. The 50 lines below, each too long, are more than the process
    // logs one by one.
    input.write_all(&[b'y'; 1 << 20]).unwrap();
    input.write_all(b"\n\xfe\xff\n").unwrap();
    for _ in 0..50 {
        writeln!(input, "{long}").unwrap();
    }
    writeln!(input, "after").unwrap();
    let told: Vec<serde_json::Value> = BufReader::new(children[1].stdout.take().unwrap())
        .lines()
        .take(5)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    for event in &told {
        assert!(crate::support::violations("neb-event", event).is_empty(), "{event}");
    }
    let payload = |key: &str, at: usize| told[at][key].as_str();
    assert_eq!([0, 2, 4].map(|at| payload("payload", at)), [Some("before"), Some(&long[1..]), Some("after")]);
    assert_eq!([1, 3].map(|at| payload("payload_hex", at)), [Some("ff"), Some("feff")]);
    assert!([1, 3].iter().all(|at| payload("payload", *at).is_none()), "{told:?}");
    assert!(told.iter().zip(0..).all(|(event, index)| event["index"] == index), "{told:?}");
    for child in &mut children {
        signal(child.id(), Signal::TERM);
    }
    let mut said = String::new();
    children[0].stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(children.into_iter().all(|mut child| child.wait().unwrap().success()), "{said}");
    let about: Vec<_> = said.lines().filter(|line| line.contains("longer than 64 bytes")).collect();
    assert!(about.first().is_some_and(|line| line.contains("g1.1: line 3 of standard input")), "{said}");
    assert!((2..10).contains(&about.len()), "{said}");
}

#[test]
fn restarted_process_is_refused_and_the_others_go_on() {
    use std::io::{BufRead, BufReader, Write};
    let scratch = Scratch::new();
    let (file, secrets) = four_processes(&scratch);
    let start = |n: usize| process(&scratch, &file, n, &secrets[n - 1]).spawn().unwrap();
    let mut children: Vec<_> = (1..=4).map(start).collect();
    let mut told = BufReader::new(children[1].stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut line = |text: &str, from: &mut std::process::Child| {
        writeln!(from.stdin.as_mut().unwrap(), "{text}").unwrap();
        assert!(told.next().unwrap().contains(text));
    };
    line("before", &mut children[0]);
    line("of the one that dies", &mut children[3]);
    let mut dead = children.remove(3);
    dead.kill().unwrap();
    dead.wait().unwrap();
    // The new process has lost the registers that the others rely on.
    let mut again = start(4);
    let said = BufReader::new(again.stderr.take().unwrap());
    let refusal = said.lines().map(Result::unwrap).find(|line| line.contains("refused a connection")).unwrap();
    for part in ["g1.4", "was started again", "stop all processes and start them anew"] {
        assert!(refusal.contains(part), "`{part}` is not in: {refusal}");
    }
    line("after", &mut children[0]);
    children.push(again);
    for child in &mut children {
        signal(child.id(), Signal::TERM);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn invalid_broadcast_configurations_are_refused() {
    let scratch = Scratch::new();
    let (file, secrets) = four_processes(&scratch);
    let refused = |mut command: Command, part: &str| {
        let ran = ran(&command.stdin(Stdio::null()).output().unwrap());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    };
    refused(process(&scratch, &file, 1, &secrets[1]), "the secret key is not the one of process 0");
    refused(process(&scratch, &file, 9, &secrets[0]), "`g1.9` is no process of the broadcast");
    refused(process(&scratch, &file, 1, &scratch.file("x", "abc")), "the file has no secret key");
    let text = std::fs::read_to_string(&file).unwrap();
    let small = scratch.file("small.toml", &text.replace("[neb]\n", "[neb]\nfaults = 2\n"));
    let ran = run(["config", "check", small.to_str().unwrap()]);
    ran.refused(&["n ≥ 3f+1 = 7; there are n = 4 processes: have at least 7 processes"]);
    let without = scratch.file(
        "without.toml",
        &text[..text
            .rfind(
                "
[neb]
",
            )
            .unwrap()],
    );
    refused(process(&scratch, &without, 1, &secrets[0]), "there is no [neb]");
}

#[test]
fn process_with_other_keys_is_refused_by_name() {
    use std::io::{BufRead, BufReader};
    let scratch = Scratch::new();
    let (file, secrets) = four_processes(&scratch);
    let text = std::fs::read_to_string(&file).unwrap();
    let key = |secret: &Path| run(["neb", "key", secret.to_str().unwrap()]).stdout.trim().to_owned();
    let other = scratch.path("other.key");
    let strange = scratch.file("strange.toml", &text.replace(&key(&secrets[1]), &key(&other)));
    // Process 2 is configured with another key for itself. The first process does not admit it.
    let mut children: Vec<_> = [(1, &file, &secrets[0]), (2, &strange, &other)]
        .map(|(n, file, secret)| process(&scratch, file, n, secret).spawn().unwrap())
        .into();
    let said = BufReader::new(children[0].stderr.take().unwrap());
    let refusal = said.lines().map(Result::unwrap).find(|line| line.contains("refused a connection")).unwrap();
    for part in ["g1.1: refused a connection: configurations differ", "g1.2", "start both with the same cluster.toml"] {
        assert!(refusal.contains(part), "`{part}` is not in: {refusal}");
    }
    for child in &mut children {
        signal(child.id(), Signal::TERM);
        assert!(child.wait().unwrap().success());
    }
}
