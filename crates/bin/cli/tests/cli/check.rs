//! Tests of `stentor check`.

use std::fs;

use rustix::process::Signal;

use crate::cluster::{Running, SMALL};
use crate::support::{Scratch, run};

const CLUSTER: &str =
    r#"{"e":"cluster","version":1,"groups":{"g1":["g1.1","g1.2"]},"clients":["c0"],"clock":"global"}"#;
const HASH: &str = "00000000000000ab";

fn multicast(t: u64, sequence: u64) -> String {
    format!(r#"{{"e":"multicast","t":{t},"p":"c0","i":1,"m":["c0",{sequence}],"to":["g1"],"len":5,"hash":"{HASH}"}}"#)
}

fn deliver(t: u64, at: &str, number: u64, sequence: u64) -> String {
    format!(
        r#"{{"e":"deliver","t":{t},"p":"{at}","i":1,"m":["c0",{sequence}],"g":"g1","n":{number},"ts":[{sequence},"g1"],"hash":"{HASH}"}}"#
    )
}

/// Returns a history with two messages, delivered in these orders at the two members.
fn history(first: [u64; 2], second: [u64; 2]) -> Vec<String> {
    vec![
        CLUSTER.to_owned(),
        multicast(1, 1),
        multicast(2, 2),
        deliver(3, "g1.1", 1, first[0]),
        deliver(4, "g1.1", 2, first[1]),
        deliver(5, "g1.2", 1, second[0]),
        deliver(6, "g1.2", 2, second[1]),
    ]
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn good_history_passes() {
    let scratch = Scratch::new();
    let file = scratch.file("good.jsonl", &text(&history([1, 2], [1, 2])));
    let path = file.to_str().unwrap();
    let ran = run(["check", path, "--complete"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("M4  uniform acyclic order  ok"), "{}", ran.stdout);
    assert!(ran.stdout.contains("2 messages, 4 deliveries"), "{}", ran.stdout);
    let document = run(["check", path, "--complete", "--json"]).document("check");
    assert_eq!(document["ok"], true);
    assert_eq!(document["counter_example"], serde_json::Value::Null);
    for property in ["M1", "M2", "M3", "M4", "M5", "M6", "M9", "R1"] {
        assert_eq!(document["properties"][property], "ok", "{property}: {document:#}");
    }
    for property in ["M7", "M8", "M10", "M11"] {
        assert_eq!(document["properties"][property], "not_checked", "{property}");
        assert!(document["not_checked"][property].is_string());
    }
}

#[test]
fn missing_events_are_not_judged_without_complete() {
    let scratch = Scratch::new();
    let mut lines = history([1, 2], [1, 2]);
    lines.pop();
    let file = scratch.file("short.jsonl", &text(&lines));
    let path = file.to_str().unwrap();
    let open = run(["check", path, "--json"]);
    assert_eq!(open.code, 0);
    assert_eq!(open.document("check")["properties"]["M2"], "not_checked");
    let complete = run(["check", path, "--complete", "--json"]);
    assert_eq!(complete.code, 1);
    let document = complete.document("check");
    assert_eq!(document["properties"]["M2"], "violated");
    assert_eq!(document["ok"], false);
    lines.push(r#"{"e":"complete"}"#.to_owned());
    let said = scratch.file("said.jsonl", &text(&lines));
    assert_eq!(run(["check", said.to_str().unwrap()]).code, 1, "the history itself says that it is complete");
}

/// Members delivered messages, so there were multicasts, but the history of the client that sent them is missing.
#[test]
fn missing_client_histories_are_not_reported_as_no_messages() {
    let scratch = Scratch::new();
    let lines: Vec<_> = history([1, 2], [1, 2]).into_iter().filter(|line| !line.contains("\"multicast\"")).collect();
    let file = scratch.file("members.jsonl", &text(&lines));
    let document = run(["check", file.to_str().unwrap(), "--complete", "--json"]).document("check");
    for property in ["M6", "R1"] {
        let why = &document["not_checked"][property];
        assert_eq!(why, "no file says what clients multicast: name the histories of all clients", "{document:#}");
    }
    let nothing = scratch.file("nothing.jsonl", &text(&[CLUSTER.to_owned()]));
    let document = run(["check", nothing.to_str().unwrap(), "--json"]).document("check");
    assert_eq!(document["not_checked"]["M6"], "nothing was multicast", "{document:#}");
}

#[test]
fn bad_history_exits_with_code_1_and_a_counter_example() {
    let scratch = Scratch::new();
    let file = scratch.file("bad.jsonl", &text(&history([1, 2], [2, 1])));
    let path = file.to_str().unwrap();
    let ran = run(["check", path]);
    assert_eq!(ran.code, 1);
    for part in ["M4  uniform acyclic order  violated", "counter-example M4: ", "bad.jsonl:6"] {
        assert!(ran.stdout.contains(part), "`{part}` is not in:\n{}", ran.stdout);
    }
    let document = run(["check", path, "--json"]).document("check");
    assert_eq!(document["properties"]["M4"], "violated");
    assert!(document["counter_example"].as_str().unwrap().starts_with('M'), "{document:#}");
    let quiet = run(["check", path, "-q"]);
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (1, "", ""));
}

#[test]
fn files_of_one_run_are_checked_together() {
    let scratch = Scratch::new();
    let lines = history([1, 2], [2, 1]);
    let part = |name: &str, wanted: &str| {
        let own = lines[1..].iter().filter(|line| line.contains(&format!("\"p\":\"{wanted}\""))).cloned();
        scratch.file(name, &text(&std::iter::once(lines[0].clone()).chain(own).collect::<Vec<_>>()))
    };
    let (client, first, second) = (part("c0", "c0"), part("g1.1", "g1.1"), part("g1.2", "g1.2"));
    assert_eq!(run([&client, &first].iter().fold(vec!["check".into()], with)).code, 0, "each order alone is fine");
    assert_eq!(run([&client, &first, &second].iter().fold(vec!["check".into()], with)).code, 1);
    let other = scratch.file("other", &CLUSTER.replace("g1.2", "g1.3"));
    let ran = run([&client, &other].iter().fold(vec!["check".into()], with));
    ran.refused(&["other:1", "differs", "files of one run"]);
}

fn with(mut args: Vec<std::ffi::OsString>, file: &&std::path::PathBuf) -> Vec<std::ffi::OsString> {
    args.push(file.as_os_str().to_owned());
    args
}

#[test]
fn garbage_is_refused_with_its_line() {
    let good = history([1, 2], [1, 2]);
    let broken = |line: usize, by: &str| {
        let mut lines = good.clone();
        lines[line - 1] = by.to_owned();
        text(&lines)
    };
    let cases = [
        (String::new(), 1, "empty", "begin each file"),
        (broken(3, "garbage"), 3, "not an event", "docs/history.md"),
        (broken(1, &multicast(1, 1)), 1, "not a cluster", "begin each file"),
        (broken(4, CLUSTER), 4, "second cluster", "one run"),
        (broken(1, &CLUSTER.replace("\"version\":1", "\"version\":9")), 1, "version 9", "of that version"),
        (broken(5, &deliver(4, "g9.1", 2, 2)), 5, "process `g9.1`", "docs/history.md"),
        (broken(5, &deliver(4, "g1.1", 2, 2).replace("\"n\":2,", "")), 5, "without `n`", "docs/history.md"),
        (broken(5, &deliver(2, "g1.1", 2, 2)), 5, "time goes back at `g1.1`", "docs/history.md"),
        (broken(5, r#"{"e":"dance","t":4,"p":"g1.1","i":1}"#), 5, "unknown event `dance`", "docs/history.md"),
        (text(&good)[..20].to_owned(), 1, "cut off", "leave the file out"),
    ];
    let scratch = Scratch::new();
    for (text, line, what, remedy) in &cases {
        let file = scratch.file("history.jsonl", text);
        run(["check", file.to_str().unwrap()]).refused(&[&format!("history.jsonl:{line}\n"), what, remedy]);
    }
    let binary = scratch.path("binary.jsonl");
    fs::write(&binary, [0xff; 100]).unwrap();
    run(["check", binary.to_str().unwrap()]).refused(&["binary.jsonl:1", "not an event"]);
}

#[test]
fn unreadable_history_is_refused() {
    run(["check", "/no/such/history.jsonl"]).refused(&["cannot read the history", "/no/such/history.jsonl"]);
    run(["check", "/"]).refused(&["it is a directory"]);
    assert_eq!(run(["check"]).code, 2);
}

#[test]
fn history_named_twice_is_no_violation() {
    let scratch = Scratch::new();
    let file = scratch.file("once.jsonl", &text(&history([1, 2], [1, 2])));
    std::os::unix::fs::symlink(&file, scratch.path("link.jsonl")).unwrap();
    let link = scratch.path("link.jsonl");
    run(["check", file.to_str().unwrap(), link.to_str().unwrap()]).refused(&["named twice", "link.jsonl"]);
    let hard = scratch.path("hard.jsonl");
    fs::hard_link(&file, &hard).unwrap();
    run(["check", file.to_str().unwrap(), hard.to_str().unwrap()]).refused(&["named twice", "hard.jsonl"]);
}

/// Writes the events into one file per process.
fn by_process(scratch: &Scratch, lines: &[String], processes: &[&str]) -> Vec<String> {
    let part = |process: &&str| {
        let own = lines[1..].iter().filter(|line| line.contains(&format!("\"p\":\"{process}\""))).cloned();
        let file = text(&std::iter::once(lines[0].clone()).chain(own).collect::<Vec<_>>());
        scratch.file(&format!("{process}.jsonl"), &file).to_str().unwrap().to_owned()
    };
    processes.iter().map(part).collect()
}

fn check(files: &[String], flags: &[&str]) -> crate::support::Ran {
    run(["check"].into_iter().chain(flags.iter().copied()).chain(files.iter().map(String::as_str)))
}

#[test]
fn missing_client_exits_with_code_3_and_no_violation() {
    let scratch = Scratch::new();
    let files = by_process(&scratch, &history([1, 2], [1, 2]), &["c0", "g1.1", "g1.2"]);
    assert_eq!(check(&files, &["--complete"]).code, 0);
    for flags in [&[][..], &["--complete"]] {
        let ran = check(&files[1..], flags);
        assert_eq!((ran.code, ran.stderr.as_str()), (3, ""), "{}", ran.stdout);
        assert!(ran.stdout.contains("cannot be judged: a history of `c0` is missing"), "{}", ran.stdout);
        let document = check(&files[1..], &[flags, &["--json"]].concat()).document("check");
        assert_eq!((&document["ok"], &document["counter_example"]), (&false.into(), &serde_json::Value::Null));
        assert_eq!(document["properties"]["M1"], "not_checked", "{document:#}");
        assert!(document["undecided"].as_str().unwrap().contains("`c0`"), "{document:#}");
    }
    // Other violations are found even without the missing file.
    let files = by_process(&scratch, &history([1, 2], [2, 1]), &["g1.1", "g1.2"]);
    assert_eq!(check(&files, &[]).code, 1);
}

/// Returns the histories of a client that was restarted after the wall clock was set back, so that its second life has
/// the smaller number.
fn clock_set_back(scratch: &Scratch, clocks: [&str; 2]) -> Vec<String> {
    let cluster = |clock: &str| CLUSTER.replace("global", clock);
    let first = [multicast(100, 1).replace("\"i\":1", "\"i\":20")];
    let second = [multicast(200, 4_294_967_297).replace("\"i\":1", "\"i\":10")];
    let member = [deliver(150, "g1.1", 1, 1), deliver(250, "g1.1", 2, 4_294_967_297)];
    let file = |name: &str, clock: &str, events: &[String]| {
        let file = text(&[&[cluster(clock)], events].concat());
        scratch.file(name, &file).to_str().unwrap().to_owned()
    };
    vec![
        file("first.jsonl", clocks[0], &first),
        file("second.jsonl", clocks[1], &second),
        file("member.jsonl", clocks[0], &member),
    ]
}

#[test]
fn lives_are_ordered_by_a_shared_clock_and_undecided_without_one() {
    let scratch = Scratch::new();
    let shared = check(&clock_set_back(&scratch, ["host:one"; 2]), &["--json"]);
    let document = shared.document("check");
    assert_eq!((shared.code, &document["properties"]["M6"]), (0, &"ok".into()), "{document:#}");
    let apart = check(&clock_set_back(&scratch, ["host:one", "host:one, started again"]), &[]);
    assert_eq!(apart.code, 3, "{}", apart.stdout);
    for part in ["cannot be judged: `c0` has several lives", "first.jsonl", "second.jsonl", "--lives-in-order"] {
        assert!(apart.stdout.contains(part), "`{part}` is not in:\n{}", apart.stdout);
    }
    // If the user states the order of the lives, the messages of both are checked against it.
    let mut files = clock_set_back(&scratch, ["host:one", "host:one, started again"]);
    let told = check(&files, &["--lives-in-order", "--json"]);
    assert_eq!((told.code, &told.document("check")["properties"]["M6"]), (0, &"ok".into()), "{}", told.stdout);
    files.swap(0, 1);
    let wrong = check(&files, &["--lives-in-order", "--json"]);
    assert_eq!((wrong.code, &wrong.document("check")["properties"]["M6"]), (1, &"violated".into()), "{}", wrong.stdout);
}

#[test]
fn empty_history_exits_with_code_3() {
    let scratch = Scratch::new();
    let file = scratch.file("empty.jsonl", &text(&[CLUSTER.to_owned()]));
    let ran = run(["check", file.to_str().unwrap(), "--complete"]);
    assert_eq!(ran.code, 3, "{}", ran.stdout);
    assert!(ran.stdout.contains("cannot be judged: nothing in it"), "{}", ran.stdout);
}

#[test]
fn events_of_another_process_are_refused() {
    let scratch = Scratch::new();
    let mut lines = history([1, 2], [1, 2]);
    lines[1] = lines[1].replace(r#""p":"c0""#, r#""p":"g1.2""#);
    let file = scratch.file("forged.jsonl", &text(&lines));
    run(["check", file.to_str().unwrap()]).refused(&[
        "forged.jsonl:2\n",
        "`multicast` of a message of `c0`, recorded by `g1.2`",
        "only the process itself records what it sends",
    ]);
}

#[test]
fn one_item_is_reported_in_the_singular() {
    let scratch = Scratch::new();
    let file = scratch.file("one.jsonl", &text(&[CLUSTER.to_owned(), multicast(1, 1), deliver(2, "g1.1", 1, 1)]));
    let ran = run(["check", file.to_str().unwrap()]);
    assert!(ran.stdout.contains("2 events, 1 message, 1 delivery, 0 crashes"), "{}", ran.stdout);
}

#[test]
fn truncated_last_line_is_left_out_and_reported() {
    let scratch = Scratch::new();
    let good = text(&history([1, 2], [1, 2]));
    let file = scratch.file("cut.jsonl", &good[..good.len() - 20]);
    let path = file.to_str().unwrap();
    let ran = run(["check", path]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    assert!(ran.stdout.contains("cut.jsonl: the last line is cut off, and was left out"), "{}", ran.stdout);
    let document = run(["check", "--complete", "--json", path]).document("check");
    assert_eq!(document["cut_off"], serde_json::json!([path]));
    assert!(document["undecided"].is_string(), "{document:#}");
}

const MEMBERS: [&str; 3] = ["g1.1", "g1.2", "g1.3"];

/// Starts the named members. Returns their histories, whose names begin with `start`.
fn begin(running: &mut Running, start: &str, members: &[&str]) -> Vec<String> {
    let file = |name: &&str| running.path(&format!("{start}.{name}.jsonl")).to_str().unwrap().to_owned();
    let files: Vec<String> = members.iter().map(file).collect();
    for (name, file) in members.iter().zip(&files) {
        running.start(name, &["--history", file]);
    }
    files
}

/// Multicasts a line. Waits until all members' histories whose names begin with `history` have the deliveries of
/// `lines` lines. Returns the history of the client.
fn cast(running: &Running, line: &str, client: &str, (history, lines): (&str, usize)) -> String {
    // Each line is sent in a new session, whose opening and end are deliveries, too.
    let deliveries = 3 * lines;
    let file = running.path(&format!("{client}.jsonl")).to_str().unwrap().to_owned();
    let cast = running.cast(line.as_bytes(), &["--to", "g1", "--client", "c0", "--history", &file]);
    assert_eq!(cast.code, 0, "{}", cast.stderr);
    for member in MEMBERS {
        if running.path(&format!("{history}.{member}.jsonl")).exists() {
            running.until_recorded(&format!("{history}.{member}.jsonl"), deliveries);
        }
    }
    file
}

/// A cluster that is stopped completely and started again begins another run. Members that are restarted one by one
/// belong to the same run.
#[test]
fn cluster_starts_are_checked_separately_and_member_restarts_together() {
    let mut running = Running::new(1, 3, SMALL);
    let mut starts: Vec<Vec<String>> = Vec::new();
    for (start, line, end) in [("one", "a line\n", Signal::TERM), ("two", "another\n", Signal::KILL)] {
        let mut files = begin(&mut running, start, &MEMBERS);
        files.push(cast(&running, line, &format!("{start}.c0"), (start, 1)));
        for name in MEMBERS {
            running.signal(name, end);
        }
        starts.push(files);
    }
    let together = check(&starts.concat(), &[]);
    assert_eq!((together.code, together.stderr.as_str()), (3, ""), "{}", together.stdout);
    let lists = format!("each start apart: {}, and {}", starts[0].join(" "), starts[1].join(" "));
    for part in ["cannot be judged: these are two runs: `g1` began from nothing", lists.as_str()] {
        assert!(together.stdout.contains(part), "`{part}` is not in:\n{}", together.stdout);
    }
    let document = check(&starts.concat(), &["--json"]).document("check");
    assert!(document["undecided"].as_str().unwrap().contains(&lists), "{document:#}");
    for files in &starts {
        assert_eq!(check(files, &[]).code, 0, "{}", check(files, &[]).stdout);
    }
    // The third start is one run, although all its members are killed and restarted one by one.
    let mut files = begin(&mut running, "three", &MEMBERS);
    files.push(cast(&running, "a line\n", "three.c0", ("three", 1)));
    for name in MEMBERS {
        running.signal(name, Signal::KILL);
        files.extend(begin(&mut running, "again", &[name]));
        running.until(name, "err", |text| text.contains("ready"));
    }
    files.push(cast(&running, "another\n", "again.c0", ("again", 1)));
    for name in MEMBERS {
        running.signal(name, Signal::TERM);
    }
    let judged = check(&files, &["--json"]);
    let document = judged.document("check");
    assert_eq!((judged.code, &document["properties"]["M11"]), (0, &"ok".into()), "{document:#}");
}
