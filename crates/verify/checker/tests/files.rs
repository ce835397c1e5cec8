//! Several files: the order of a process's lives, properties that are not judged because a file is missing or cut off,
//! and files of several runs.

use stentor_checker::history::{Told, check_inputs_told};
use stentor_checker::{Author, Cluster, HistoryWriter, Process, Report, check_inputs};

/// Returns a file: its cluster line, with this clock and this author, and events.
fn file(clock: &str, by: &str, events: &[String]) -> String {
    let clock = if clock.is_empty() { String::new() } else { format!(r#","clock":"{clock}""#) };
    let cluster = format!(r#"{{"e":"cluster","groups":{{"g":["a","b"]}},"clients":["c"],"window":8{clock}{by}}}"#);
    std::iter::once(&cluster).chain(events).map(|line| format!("{line}\n")).collect()
}

fn by(process: &str, began: u64) -> String {
    format!(r#","by":"{process}","began":{began}"#)
}

fn multicast(t: u64, life: u64, sequence: u64) -> String {
    format!(
        r#"{{"t":{t},"p":"c","i":{life},"e":"multicast","m":["c","{sequence}"],"to":["g"],"len":1,"hash":"aaaaaaaaaaaaaaaa"}}"#
    )
}

fn deliver(t: u64, at: &str, life: u64, number: u64, sequence: u64) -> String {
    format!(
        r#"{{"t":{t},"p":"{at}","i":{life},"e":"deliver","m":["c","{sequence}"],"g":"g","n":{number},"ts":[{number},"g"],"hash":"aaaaaaaaaaaaaaaa"}}"#
    )
}

fn recover(t: u64, at: &str, life: u64, from: u64) -> String {
    format!(r#"{{"t":{t},"p":"{at}","i":{life},"e":"recover","from":{from}}}"#)
}

fn crash(t: u64, at: &str, life: u64) -> String {
    format!(r#"{{"t":{t},"p":"{at}","i":{life},"e":"crash"}}"#)
}

fn inputs(files: &[String]) -> impl Iterator<Item = (String, &[u8])> {
    (1..).map(|n| format!("{n}.jsonl")).zip(files.iter().map(String::as_bytes))
}

fn check(files: &[String], complete: bool) -> Report {
    check_inputs(inputs(files), complete).unwrap_or_else(|error| panic!("{error}"))
}

fn check_in_order(files: &[String], complete: bool) -> Report {
    let told = Told { complete, lives_in_order: true, ..Told::default() };
    check_inputs_told(inputs(files), told).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks the files in every rotation of their order.
fn check_in_any_order(files: &[String], complete: bool) -> Report {
    let mut turned = files.to_vec();
    let report = check(files, complete);
    for _ in 0..files.len() {
        turned.rotate_left(1);
        let other = check(&turned, complete);
        let verdicts = |report: &Report| report.properties.values().map(|v| v.as_str()).collect::<Vec<_>>();
        assert_eq!(verdicts(&report), verdicts(&other));
    }
    report
}

fn violated(report: &Report) -> Vec<&str> {
    report.violated().collect()
}

const ONE: &str = "host:one";
const SECOND: u64 = (1 << 40) | 1;

/// Returns the files of two lives of the client, and of the members. The second life has a smaller number, because the
/// calendar was set back between the lives.
fn clock_set_back(clocks: [&str; 3]) -> Vec<String> {
    vec![
        file(clocks[0], "", &[multicast(100, 20, 1)]),
        file(clocks[1], "", &[multicast(200, 10, SECOND)]),
        file(clocks[2], "", &[deliver(150, "a", 7, 1, 1), deliver(250, "a", 7, 2, SECOND)]),
    ]
}

#[test]
fn lives_are_ordered_by_the_clock_of_their_times_and_not_by_their_numbers() {
    for clock in [ONE, "global"] {
        let report = check_in_any_order(&clock_set_back([clock; 3]), false);
        assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
        assert_eq!(report.properties["M6"].as_str(), "ok");
    }
    // The order matters: deliveries in the opposite order are a violation.
    let mut files = clock_set_back([ONE; 3]);
    files[2] = file(ONE, "", &[deliver(250, "a", 7, 1, SECOND), deliver(251, "a", 7, 2, 1)]);
    assert_eq!(violated(&check_in_any_order(&files, false)), ["M6"]);
}

#[test]
fn lives_of_a_member_are_ordered_by_the_clock_of_their_times() {
    let multicasts = file(ONE, "", &[multicast(1, 1, 1), multicast(2, 1, 2), multicast(3, 1, 3)]);
    let all = |at: &str, life| (1..=3).map(|n| deliver(40 + n, at, life, n, n)).collect::<Vec<_>>();
    let first = file(ONE, "", &[deliver(10, "a", 20, 1, 1), deliver(11, "a", 20, 2, 2)]);
    let second = file(ONE, "", &[recover(30, "a", 10, 2), deliver(31, "a", 10, 3, 3)]);
    let files = [multicasts.clone(), file(ONE, "", &all("b", 5)), first.clone(), second];
    let report = check_in_any_order(&files, true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    assert_eq!(report.properties["M11"].as_str(), "ok");
    // The last life counts. It crashed, so nothing is required of `a`.
    let crashed = file(ONE, "", &[recover(30, "a", 10, 2), crash(31, "a", 10)]);
    let files = [multicasts.clone(), file(ONE, "", &all("b", 5)), first.clone(), crashed];
    assert_eq!(
        check_in_any_order(&files, true).properties["M2"].as_str(),
        "not_checked",
        "`b` alone is not a majority"
    );
    // The crash that another process recorded is that of the first life.
    let seen = file(ONE, "", &[crash(20, "a", 20)]);
    let last = file(ONE, "", &[recover(30, "a", 10, 2)]);
    let report = check_in_any_order(&[multicasts, file(ONE, "", &all("b", 5)), first, seen, last], true);
    assert_eq!(violated(&report), ["M2", "M3", "M9"], "`a` is up and lacks the third");
}

#[test]
fn lives_on_different_clocks_are_not_judged() {
    for clocks in [["host:one", "host:two", "host:one"], ["host:one", "host:two", "host:two"]] {
        let report = check_in_any_order(&clock_set_back(clocks), true);
        let why = report.undecided().expect("no verdict");
        assert!(why.contains("`c` has several lives") && why.contains("different clocks"), "{why}");
        assert!(violated(&report).is_empty() && !report.ok(), "{report:#?}");
        assert!(report.properties.values().all(|verdict| verdict.as_str() == "not_checked"), "{report:#?}");
    }
    // Only lives of one process need a common clock.
    let apart = [file("host:one", "", &[multicast(100, 20, 1)]), file("host:two", "", &[deliver(50, "a", 7, 1, 1)])];
    let report = check_in_any_order(&apart, false);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
}

#[test]
fn lives_on_different_clocks_are_judged_in_the_order_in_which_their_files_are_given() {
    // The host was rebooted between the two lives: its clock restarted, and its calendar showed an earlier time.
    let one = file("host:one", "", &[multicast(9000, 20, 1)]);
    let two = file("host:two", "", &[multicast(200, 10, SECOND)]);
    let member = |at: &str| file("host:m", "", &[deliver(150, at, 7, 1, 1), deliver(250, at, 7, 2, SECOND)]);
    let (a, b) = (member("a"), member("b"));
    // Only the files of one process need an order.
    for files in [[&one, &two, &a, &b], [&a, &one, &b, &two], [&b, &a, &one, &two]] {
        let report = check_in_order(&files.map(Clone::clone), true);
        assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
        assert_eq!(report.properties["M6"].as_str(), "ok");
    }
    // The order matters: with the files in the opposite order, the deliveries are in the wrong order.
    assert_eq!(violated(&check_in_order(&[two, one, a, b], true)), ["M6"]);
}

#[test]
fn an_order_of_files_that_their_times_contradict_is_not_judged() {
    let [one, two, member] = clock_set_back([ONE; 3]).try_into().expect("three files");
    let report = check_in_order(&[one.clone(), two.clone(), member.clone()], false);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    let report = check_in_order(&[two, one, member], false);
    let why = report.undecided().expect("no verdict");
    assert!(why.contains("2.jsonl was over when that in 1.jsonl began"), "{why}");
}

#[test]
fn lives_are_ordered_by_number_if_no_file_names_a_clock() {
    let files = |numbers: [u64; 2]| {
        vec![
            file("", "", &[multicast(100, numbers[0], 1)]),
            file("", "", &[multicast(200, numbers[1], SECOND)]),
            file("", "", &[deliver(150, "a", 7, 1, 1), deliver(250, "a", 7, 2, SECOND)]),
        ]
    };
    assert_eq!(violated(&check_in_any_order(&files([1, 2]), false)), Vec::<&str>::new());
    assert_eq!(violated(&check_in_any_order(&files([2, 1]), false)), ["M6"]);
}

#[test]
fn lives_that_overlap_are_ordered_by_when_they_began() {
    // The second process superseded the first one. The first process learnt of it late, and its last multicast is never
    // delivered.
    let old = |by: &str| file(ONE, by, &[multicast(100, 20, 1), multicast(220, 20, 2)]);
    let new = |by: &str| file(ONE, by, &[multicast(200, 10, SECOND), multicast(230, 10, SECOND + 1)]);
    let delivered = [(150, 1), (250, SECOND), (251, SECOND + 1)];
    let member = |at: &str| {
        let lines = (1..).zip(delivered).map(|(n, (t, m))| deliver(t, at, 1, n, m)).collect::<Vec<_>>();
        file(ONE, &by(at, 1), &lines)
    };
    let known = [old(&by("c", 90)), new(&by("c", 190)), member("a"), member("b")];
    let report = check_in_any_order(&known, true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    let unknown = [old(""), new(""), member("a"), member("b")];
    let report = check_in_any_order(&unknown, true);
    assert!(report.undecided().is_some_and(|why| why.contains("overlap in time")), "{report:#?}");
    // The first process was idle until the second had ended. Only `began` shows that it was first.
    let idle = file(ONE, &by("c", 90), &[multicast(300, 20, 2)]);
    let new = file(ONE, &by("c", 190), &[multicast(200, 10, SECOND)]);
    let member = |at: &str| file(ONE, &by(at, 1), &[deliver(250, at, 1, 1, SECOND)]);
    let report = check_in_any_order(&[idle, new, member("a"), member("b")], true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
}

#[test]
fn a_missing_client_makes_a_history_incomplete_and_not_a_violation() {
    let events = [deliver(10, "a", 1, 1, 1), deliver(11, "a", 1, 2, 2)];
    for complete in [false, true] {
        let report = check(&[file(ONE, "", &events)], complete);
        let why = report.undecided().expect("no verdict");
        assert!(why.contains("a history of `c` is missing"), "{why}");
        assert!(violated(&report).is_empty(), "{report:#?}");
        // One life of the client has a file, the other one has none.
        let lives = [file(ONE, "", &[multicast(1, 1, SECOND)]), file(ONE, "", &events)];
        let report = check_in_any_order(&lives, false);
        assert!(report.undecided().is_some() && violated(&report).is_empty(), "{report:#?}");
    }
    // The client's file exists, but does not contain this multicast.
    let there = [file(ONE, "", &[multicast(1, 1, 1)]), file(ONE, "", &events)];
    assert_eq!(violated(&check_in_any_order(&there, false)), ["M1"]);
    // A violation that holds independent of any missing file is reported.
    let twice = [deliver(10, "a", 1, 1, 1), deliver(11, "a", 1, 2, 1)];
    let report = check(&[file(ONE, "", &twice)], false);
    assert_eq!((violated(&report), report.undecided()), (vec!["M1", "M5"], None), "{report:#?}");
    // Remote operations for a message with unknown destinations.
    let operation = r#"{"t":12,"p":"a","i":1,"e":"remote_op","m":["c","1"],"kind":"ack","to":"b"}"#.to_owned();
    let report = check(&[file(ONE, "", &[deliver(10, "a", 1, 1, 1), operation])], false);
    assert!(violated(&report).is_empty() && report.undecided().is_some(), "{report:#?}");
}

#[test]
fn a_missing_member_makes_a_history_incomplete_and_not_a_violation() {
    let client = file(ONE, &by("c", 1), &[multicast(1, 1, 1)]);
    let a = file(ONE, &by("a", 1), &[deliver(10, "a", 1, 1, 1)]);
    let report = check_in_any_order(&[client.clone(), a.clone()], true);
    assert!(report.undecided().is_some_and(|why| why.contains("a history of `b` is missing")), "{report:#?}");
    // The file of `b` exists and has no events.
    let b = file(ONE, &by("b", 1), &[]);
    assert_eq!(violated(&check_in_any_order(&[client, a, b], true)), ["M2", "M3", "M9"]);
}

#[test]
fn a_missing_sender_makes_a_history_incomplete_and_not_a_violation() {
    let broadcast = |e: &str, p: &str| {
        format!(r#"{{"t":1,"p":"{p}","i":1,"e":"{e}","s":"a","k":0,"len":1,"hash":"aaaaaaaaaaaaaaaa"}}"#)
    };
    let receiver = file(ONE, &by("b", 1), &[broadcast("bdeliver", "b")]);
    let report = check(std::slice::from_ref(&receiver), true);
    assert!(report.undecided().is_some_and(|why| why.contains("a history of `a` is missing")), "{report:#?}");
    let sender = file(ONE, &by("a", 1), &[broadcast("broadcast", "a"), broadcast("bdeliver", "a")]);
    let report = check_in_any_order(&[receiver.clone(), sender], true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    let idle = file(ONE, &by("a", 1), &[]);
    assert_eq!(violated(&check_in_any_order(&[receiver, idle], false)), ["B3"]);
}

#[test]
fn a_history_in_which_nothing_can_be_judged_is_undecided() {
    for complete in [false, true] {
        let report = check(&[file(ONE, "", &[])], complete);
        assert!(report.undecided().is_some_and(|why| why.contains("nothing in it can be judged")), "{report:#?}");
    }
}

#[test]
fn a_record_names_its_author_and_its_beginning() {
    let cluster = Cluster::builder().group("g", ["a", "b"]).clients(["c"]).host_clock("one").build().unwrap();
    let mut text = Vec::new();
    drop(HistoryWriter::of(&mut text, &cluster, Author { process: Process(2), began: 17 }).unwrap());
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with(",\"clock\":\"host:one\",\"by\":\"c\",\"began\":17}\n"), "{text}");
    let stranger = text.replace(r#""by":"c""#, r#""by":"z""#);
    let refused = check_inputs([("h".to_owned(), stranger.as_bytes())], false).unwrap_err().to_string();
    assert_eq!(refused, "h:1: process `z` is not in the cluster line");
}

/// The disk of a member was full, or the member was killed while it wrote. Nothing is judged that its file may lack.
/// The events in the file are judged, and messages that other members lack are reported.
#[test]
fn record_that_ends_early_is_judged_as_far_as_it_goes() {
    let client = file(ONE, &by("c", 1), &[multicast(1, 1, 1), multicast(2, 1, 2)]);
    let whole = |at: &str| file(ONE, &by(at, 1), &[deliver(5, at, 1, 1, 1), deliver(6, at, 1, 2, 2)]);
    let short = |end: &str| file(ONE, &by("b", 1), &[deliver(5, "b", 1, 1, 1), end.to_owned()]);
    let said = short(r#"{"t":6,"p":"b","i":1,"e":"unrecorded"}"#);
    let cut = short(&deliver(6, "b", 1, 2, 2)[..30]).trim_end().to_owned();
    for (end, cut_off) in [(&said, false), (&cut, true)] {
        let report = check_in_any_order(&[client.clone(), whole("a"), end.clone()], true);
        let why = report.undecided().unwrap_or_else(|| panic!("{report:#?}"));
        assert!(why.contains("the history of `b` ends before `b` did"), "{why}");
        assert_eq!(report.properties["M1"].as_str(), "ok");
        assert_eq!(!report.cut_off.is_empty(), cut_off, "{:?}", report.cut_off);
        // The other member lacks a message, and its record is complete.
        let lacking = file(ONE, &by("a", 1), &[deliver(5, "a", 1, 1, 1)]);
        let report = check_in_any_order(&[client.clone(), lacking, end.clone()], true);
        assert!(violated(&report).contains(&"M2") || violated(&report).contains(&"M3"), "{report:#?}");
        // The recorded events themselves can be wrong.
        let other = end.replace(r#""n":1,"ts":[1"#, r#""n":2,"ts":[2"#);
        assert!(!violated(&check(&[client.clone(), whole("a"), other], true)).is_empty());
    }
    // Without the mark of the early end, the second message counts as missing.
    let report = check(&[client, whole("a"), file(ONE, &by("b", 1), &[deliver(5, "b", 1, 1, 1)])], true);
    assert!(!violated(&report).is_empty());
    // A killed process is excused by its crash, which another process recorded.
    let killed = file(ONE, &by("c", 1), &[multicast(1, 1, 1), multicast(2, 1, 2), crash(9, "b", 1)]);
    assert!(violated(&check(&[killed, whole("a"), cut], true)).is_empty());
}

/// A cut-off file of a whole run may lack events of any process.
#[test]
fn cut_off_record_of_a_whole_run_is_judged_as_far_as_it_goes() {
    let events = [multicast(1, 1, 1), deliver(5, "a", 1, 1, 1), deliver(6, "b", 1, 1, 1)];
    let whole = file("global", "", &events);
    assert!(check(std::slice::from_ref(&whole), true).ok());
    let cut = whole.trim_end()[..whole.len() - 20].to_owned();
    let report = check(&[cut], true);
    assert!(report.undecided().is_some() && violated(&report).is_empty(), "{report:#?}");
}

#[test]
fn file_that_ends_within_its_first_line_records_nothing() {
    let error = check_inputs([("1.jsonl".to_owned(), &br#"{"e":"cluster","gro"#[..])], false).unwrap_err();
    assert!(error.to_string().starts_with("1.jsonl:1: the last line is cut off"), "{error}");
}

fn epoch(t: u64, at: &str, life: u64, ballot: u64) -> String {
    format!(r#"{{"t":{t},"p":"{at}","i":{life},"e":"epoch","g":"g","ballot":[{ballot},"{at}"],"leader":"{at}"}}"#)
}

/// Returns the files of one start of the whole group: those of `a`, of `b` and of the client. The members began 1 ns
/// and 10 ns after `t`, so `b` is the last one.
fn start(clocks: [&str; 3], t: u64, life: u64, ballot: u64) -> Vec<String> {
    let first =
        |at: &str, t: u64| [recover(t, at, life, 0), deliver(t, at, life, 1, 1), deliver(t + 1, at, life, 2, 2)];
    let a = [vec![epoch(t + 15, "a", life, ballot)], first("a", t + 30).to_vec()].concat();
    vec![
        file(clocks[0], &by("a", t + 1), &a),
        file(clocks[1], &by("b", t + 10), &first("b", t + 35)),
        file(clocks[2], &by("c", t + 12), &[multicast(t + 20, life, 1), multicast(t + 21, life, 2)]),
    ]
}

/// Returns the files of two starts. The second time, the group began from nothing: with the same ballot, the same
/// numbers, and the same message ids.
fn two_starts() -> Vec<String> {
    [start([ONE; 3], 0, 1, 2), start([ONE; 3], 1000, 2, 2)].concat()
}

fn apart(report: &Report) -> Option<&str> {
    report.undecided().filter(|why| why.contains(" runs: "))
}

#[test]
fn histories_of_two_starts_are_distinguished_and_not_judged() {
    for complete in [false, true] {
        let report = check_in_any_order(&two_starts(), complete);
        assert!(violated(&report).is_empty() && !report.ok(), "{report:#?}");
        assert!(report.properties.values().all(|verdict| verdict.as_str() == "not_checked"), "{report:#?}");
        for files in [&two_starts()[..3], &two_starts()[3..]] {
            let report = check_in_any_order(files, complete);
            assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
        }
    }
    assert_eq!(
        apart(&check(&two_starts(), false)),
        Some(
            "these are two runs: `g` began from nothing after all its members had been started anew, the last one `b` with \
             5.jsonl; check the histories of each start apart: 1.jsonl 2.jsonl 3.jsonl, and 4.jsonl 5.jsonl 6.jsonl"
        )
    );
    let three = [two_starts(), start([ONE; 3], 2000, 3, 2)].concat();
    let report = check_in_any_order(&three, false);
    let why = apart(&report).unwrap_or_else(|| panic!("{report:#?}"));
    assert!(why.starts_with("these are 3 runs: "), "{why}");
    let why = apart(&check(&three, false)).map(str::to_owned).expect("no verdict");
    let lists = "1.jsonl 2.jsonl 3.jsonl, and 4.jsonl 5.jsonl 6.jsonl, and 7.jsonl 8.jsonl 9.jsonl";
    assert!(why.ends_with(lists), "{why}");
}

/// A description, a change to the files of two starts, and the result. `None`: the starts are still distinguished.
/// Otherwise they are judged as one run, in which these properties are violated.
type Change = (&'static str, fn(&mut Vec<String>), Option<&'static [&'static str]>);

const A1: usize = 0;
const B1: usize = 1;
const A2: usize = 3;
const B2: usize = 4;
const C2: usize = 5;

/// Each entry changes one aspect of the files that `histories_of_two_starts_are_distinguished_and_not_judged` shows to
/// be two runs.
const CHANGES: &[Change] = &[
    ("the second start has a higher ballot", |files| files[A2] = files[A2].replace("[2,\"a\"]", "[3,\"a\"]"), None),
    (
        "other bytes under the same ids",
        |files| {
            (A2..=C2).for_each(|n| files[n] = files[n].replace("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"));
        },
        None,
    ),
    ("the earlier life of the last member lasts until its next one", |files| files[B1] += &memory(1009, "b", 1), None),
    (
        "the earlier life of the last member leads until its next one",
        |files| files[B1] += &line(epoch(1009, "b", 1, 3)),
        None,
    ),
    (
        "nothing was delivered, and the ballot is used again",
        |files| {
            for n in [A1, B1, A2, B2] {
                files[n] = files[n]
                    .lines()
                    .filter(|line| !line.contains("\"n\":") && !line.contains("recover"))
                    .map(line)
                    .collect();
            }
        },
        None,
    ),
    ("a member is started twice before the group begins", |files| files.push(file(ONE, &by("b", 1005), &[])), None),
    (
        "a member is started again in the second run",
        |files| {
            files.push(file(ONE, &by("b", 1050), &[recover(1060, "b", 3, 2)]));
        },
        None,
    ),
    ("a member wrote nothing in the second run", |files| files[B2] = file(ONE, &by("b", 1010), &[]), None),
    (
        "one member lives on",
        |files| {
            files.remove(B2);
        },
        Some(&["M10"]),
    ),
    (
        "the other members are not known to be new",
        |files| {
            files.drain(A1..=B1);
        },
        Some(&[]),
    ),
    (
        "a member has the state before the last one is started",
        |files| {
            files[A2] = files[A2].replace("\"t\":1015", "\"t\":1009");
        },
        Some(&["M10"]),
    ),
    (
        "the state is taken over",
        |files| {
            for n in [A2, B2, C2] {
                files[n] =
                    files[n].replace(r#""from":0"#, r#""from":2"#).replace(r#""n":2,"ts":[2"#, r#""n":4,"ts":[4"#);
                files[n] =
                    files[n].replace(r#""n":1,"ts":[1"#, r#""n":3,"ts":[3"#).replace(r#"["c","1"]"#, r#"["c","3"]"#);
                files[n] = files[n].replace(r#"["c","2"]"#, r#"["c","4"]"#);
            }
        },
        Some(&["M10"]),
    ),
    (
        "the first message is delivered again, and was multicast once",
        |files| {
            files[C2] = file(ONE, &by("c", 1012), &[]);
            files[A2] = files[A2].replace("[2,\"a\"]", "[3,\"a\"]");
        },
        Some(&[]),
    ),
    (
        "one file has lives of both",
        |files| {
            let second = files.remove(A2);
            files[A1] += &second.lines().skip(1).map(line).collect::<String>();
        },
        Some(&["M10"]),
    ),
    (
        "nothing is forgotten: there was no delivery, and the ballot is above",
        |files| {
            for n in [A1, B1] {
                files[n] = files[n]
                    .lines()
                    .filter(|line| !line.contains("\"n\":") && !line.contains("recover"))
                    .map(line)
                    .collect();
            }
            files[A2] = files[A2].replace("[2,\"a\"]", "[3,\"a\"]");
        },
        Some(&[]),
    ),
];

fn line(text: impl AsRef<str>) -> String {
    format!("{}\n", text.as_ref())
}

fn memory(t: u64, at: &str, life: u64) -> String {
    line(format!(r#"{{"t":{t},"p":"{at}","i":{life},"e":"memory","bytes":1,"limit":2}}"#))
}

#[test]
fn starts_are_distinguished_by_certain_evidence_only() {
    for (what, change, judged) in CHANGES {
        let mut files = two_starts();
        change(&mut files);
        assert_ne!(files, two_starts(), "{what}: nothing is changed");
        let report = check_in_any_order(&files, false);
        match judged {
            None => assert!(apart(&report).is_some() && violated(&report).is_empty(), "{what}: {report:#?}"),
            Some(wrong) => {
                assert_eq!((apart(&report), violated(&report)), (None, wrong.to_vec()), "{what}: {report:#?}");
            }
        }
    }
}

/// Members restart one after the other, and each is admitted by those that remember the state. There are no deliveries
/// in the meantime, and no killed process recorded its end.
#[test]
fn members_that_restart_one_after_the_other_are_of_one_run() {
    let first = start([ONE; 3], 0, 1, 2);
    let back = |at: &str, t: u64, from: u64, more: &[String]| {
        file(ONE, &by(at, t), &[&[recover(t + 1, at, 2, from)], more].concat())
    };
    let next = [back("a", 100, 2, &[epoch(210, "a", 2, 5)]), back("b", 200, 2, &[])];
    let report = check_in_any_order(&[first, next.to_vec()].concat(), true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    assert_eq!(report.properties["M11"].as_str(), "ok");
    // Before the first delivery, an admitted member has nothing to record.
    let quiet = |at: &str, t: u64, life: u64, events: &[String]| {
        file(ONE, &by(at, t), &[&[memory(t, at, life).trim_end().to_owned()], events].concat())
    };
    let all = |at: &str| [recover(330, at, 2, 0), deliver(330, at, 2, 1, 1)];
    let files = [
        quiet("a", 1, 1, &[epoch(15, "a", 1, 2)]),
        quiet("b", 10, 1, &[epoch(101, "b", 1, 3)]),
        quiet("a", 100, 2, &[&[epoch(210, "a", 2, 5)][..], &all("a")].concat()),
        quiet("b", 200, 2, &all("b")),
        file(ONE, &by("c", 300), &[multicast(310, 1, 1)]),
    ];
    let report = check_in_any_order(&files, true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
}

#[test]
fn starts_on_several_hosts_are_distinguished_without_their_clients() {
    let hosts = [ONE, "host:two", ONE];
    let files = [start(hosts, 0, 1, 2), start(hosts, 1000, 2, 2)].concat();
    let report = check_in_any_order(&files, false);
    assert!(violated(&report).is_empty(), "{report:#?}");
    let lists = "apart: 1.jsonl 2.jsonl, and 4.jsonl 5.jsonl, each with the histories of its clients";
    assert!(apart(&check(&files, false)).is_some_and(|why| why.ends_with(lists)), "{report:#?}");
    // A member that was admitted in the meantime belongs to the first start.
    let back = file(ONE, &by("a", 500), &[recover(501, "a", 9, 2)]);
    let report = check(&[&files[..], &[back]].concat(), false);
    let lists = "apart: 1.jsonl 2.jsonl 7.jsonl, and 4.jsonl 5.jsonl, each with the histories of its clients";
    assert!(apart(&report).is_some_and(|why| why.ends_with(lists)), "{report:#?}");
    // Runs are also distinguished after a reboot of all hosts, if the caller states the order of lives.
    let rebooted = ["host:one, again", "host:two, again", "host:one, again"];
    let files = [start(hosts, 500, 1, 2), start(rebooted, 0, 2, 2)].concat();
    assert!(check(&files, false).undecided().is_some_and(|why| why.contains("different clocks")));
    assert!(apart(&check_in_order(&files, false)).is_some());
    // One of the members continues.
    let mut files = [start(hosts, 0, 1, 2), start(hosts, 1000, 2, 2)].concat();
    files.remove(B2);
    assert_eq!(violated(&check_in_any_order(&files, false)), ["M10"]);
    // Both members were admitted.
    let taken_in = |at: &str, host: &str| file(host, &by(at, 100), &[recover(101, at, 2, 2)]);
    let next = [taken_in("a", ONE), taken_in("b", "host:two")];
    let report = check_in_any_order(&[start(hosts, 0, 1, 2), next.to_vec()].concat(), true);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
}

/// A group loses its state while another group continues. The checker still judges all files as one run, because the
/// other group remembers. Only a simultaneous loss in all groups ends a run.
#[test]
fn a_group_that_begins_anew_alone_ends_no_run() {
    let groups = |files: &[String]| -> Vec<String> {
        files.iter().map(|file| file.replace(r#"{"g":["a","b"]}"#, r#"{"g":["a","b"],"h":["d"]}"#)).collect()
    };
    let leads = |t: u64, life: u64, led: u64| {
        let epoch = format!(r#"{{"t":{led},"p":"d","i":{life},"e":"epoch","g":"h","ballot":[2,"d"],"leader":"d"}}"#);
        file(ONE, &by("d", t), &[epoch])
    };
    let files = groups(&[two_starts(), vec![leads(2, 1, 3)]].concat());
    assert_eq!(violated(&check_in_any_order(&files, false)), ["M10"]);
    // The other group is restarted as well, but after the first one has delivered again.
    let files = groups(&[two_starts(), vec![leads(2, 1, 3), leads(1040, 2, 1041)]].concat());
    assert_eq!(violated(&check_in_any_order(&files, false)), ["M10"]);
    // Both groups are restarted at the same time.
    let files = groups(&[two_starts(), vec![leads(2, 1, 3), leads(1011, 2, 1013)]].concat());
    let report = check_in_any_order(&files, false);
    assert!(
        apart(&report).is_some_and(|why| why.contains("`g`, `h` began from nothing after all their")),
        "{report:#?}"
    );
}

#[test]
fn a_message_after_the_end_of_its_clients_history_may_be_a_missing_line() {
    let member = file(ONE, "", &[deliver(10, "a", 1, 1, 1), deliver(11, "a", 1, 2, 2)]);
    let summary = |sequences: &[u64]| {
        let sent: Vec<String> = sequences.iter().map(|sequence| multicast(1, 1, *sequence)).collect();
        let report = check(&[file(ONE, "", &sent), member.clone()], false);
        assert!(violated(&report).contains(&"M1"), "{report:#?}");
        let stentor_checker::Verdict::Violated(example) = &report.properties["M1"] else { unreachable!() };
        example.summary.clone()
    };
    assert_eq!(summary(&[1]), "a delivered [c,2], which nobody multicast (or a line of c's history is missing)");
    assert_eq!(summary(&[2]), "a delivered [c,1], which nobody multicast");
    assert_eq!(
        summary(&[1, 3]),
        "a delivered [c,2], which nobody multicast",
        "the client's history continues after it"
    );
}
