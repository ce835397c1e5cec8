//! `stentor bench`: that it measures what it says. How fast, only a release build on an idle machine tells.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Scratch, run, stentor};

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().expect("rows")
}

#[test]
fn every_verb_has_a_row_beside_its_floor() {
    let document = run(["bench", "fabric", "-n", "600", "--rounds", "2", "--json"]).document("bench");
    assert_eq!(document["environment"]["wait"], "poll");
    let names: Vec<_> = rows(&document).iter().map(|row| row["name"].as_str().unwrap()).collect();
    for verb in
        ["raw WRITE", "sealed record of that size in all", "sealed record with that payload", "SEND/RECV", "READ"]
    {
        assert!(names.iter().any(|name| name.starts_with(verb)), "{verb}: {names:?}");
    }
    for verb in
        ["WRITE signalled", "WRITE unsignalled", "WRITE inline unsignalled UC", "WRITE_WITH_IMM inline signalled"]
    {
        assert!(names.iter().any(|name| name.starts_with(verb)), "{verb}: {names:?}");
    }
    for row in rows(&document) {
        let is_rate = row["floor"]["unit"] == "msgs/s";
        let (figure, floor) = (&row[if is_rate { "msgs_per_s" } else { "p50_us" }], &row["floor"]["value"]);
        let (figure, floor) = (figure.as_f64().unwrap(), floor.as_f64().unwrap());
        let ratio = if is_rate { floor / figure } else { figure / floor };
        assert!((ratio / row["ratio"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{row}");
        assert!(row["iterations"].as_u64().unwrap() >= 600, "{row}");
    }
}

#[test]
fn ways_of_sending_messages_stand_beside_each_other_and_a_bare_operation() {
    for fabric in ["shm", "roce"] {
        let args = ["bench", "channel", "--fabric", fabric, "-n", "200", "--rounds", "2", "--json"];
        let document = run(args).document("bench");
        let told: Vec<_> = rows(&document).iter().map(|row| (row["bytes"].as_u64().unwrap(), row)).collect();
        let sizes: Vec<_> = told.iter().map(|(bytes, _)| *bytes).collect();
        let each = [8, 4096, 65_536, 1 << 20].map(|bytes| [bytes; 3]).concat();
        assert_eq!(sizes, each, "three ways of each size, side by side");
        for (bytes, row) in told {
            let is_rate = bytes == 1 << 20;
            assert_eq!(row["floor"]["unit"], if is_rate { "msgs/s" } else { "us" });
            let figure = row[if is_rate { "mb_per_s" } else { "p50_us" }].as_f64().unwrap();
            assert!(figure > 0.0 && row["ratio"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["floor"]["what"].as_str().unwrap().contains("WRITE_WITH_IMM"), "{row}");
        }
        for way in ["counted", "in place", "the notes"] {
            assert!(rows(&document).iter().any(|row| row["name"].as_str().unwrap().contains(way)), "{way}");
        }
    }
}

#[test]
fn the_multicast_is_measured_one_at_a_time_and_with_a_window() {
    let args = ["bench", "multicast", "-n", "400", "--rounds", "2", "--window", "16", "--wait", "yield", "--json"];
    // On a busy machine members wait for each other so long that they ask again: those writes are none of an unloaded message's.
    let is_unloaded = |document: &Value| {
        let counts = rows(document).iter().map(|row| row["writes"]["per_message"].as_f64().unwrap());
        counts.fold(0.0, f64::max) <= 36.5
    };
    let mut document = run(args).document("bench");
    for _ in 0..4 {
        if is_unloaded(&document) {
            break;
        }
        document = run(args).document("bench");
    }
    assert_eq!(document["environment"]["wait"], "yield");
    let [one, window] = rows(&document) else { panic!("{document}") };
    assert_eq!((&one["floor"]["unit"], &window["floor"]["unit"]), (&"us".into(), &"msgs/s".into()));
    for row in [one, window] {
        let steps = &row["writes"]["by_step"];
        assert_eq!(row["writes"]["formula"], 36.0, "{row}");
        assert_eq!(steps["body"], 6.0, "a client writes each message to each destination: {row}");
        assert!(row["writes"]["per_message"].as_f64().unwrap() <= 36.5, "{row}");
        assert!(row["p50_us"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_device_is_measured_or_missed() {
    run(["bench", "fabric", "--fabric", "verbs", "--pcap", "x.pcap"]).refused(&["a capture or a bad network on verbs"]);
    let told = run(["bench", "fabric", "--fabric", "verbs", "-n", "100", "--rounds", "1", "--json"]);
    let has_device = fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if has_device {
        let document = told.document("bench");
        assert!(rows(&document).iter().all(|row| row["floor"].is_null() && row["ratio"].is_null()), "{document:#}");
    } else {
        let document: Value = serde_json::from_str(&told.stdout).expect("an error is a document, too");
        assert_eq!((told.code, &document["error"]["where"]), (1, &"stentor bench fabric".into()), "{document:#}");
    }
}

/// The document of a bench no floor of which is far above its row. So few messages next to somebody who wants the processors say
/// little: of several tries one is enough.
fn with_near_floors(args: &[&str]) -> Value {
    let is_near = |row: &Value| row["ratio"].as_f64().is_none_or(|ratio| ratio > 0.5);
    let mut documents = (0..5).map(|_| run(args).document("bench"));
    documents.find(|document| rows(document).iter().all(is_near)).expect("no floor is far above its row")
}

#[test]
fn over_roce_the_floors_are_datagrams() {
    let args = ["bench", "multicast", "--fabric", "roce", "-n", "200", "--rounds", "2", "--window", "16", "--json"];
    let document = with_near_floors(&args);
    assert_eq!(document["environment"]["fabric"], "roce");
    let [one, window] = rows(&document) else { panic!("{document}") };
    for row in [one, window] {
        assert!(row["floor"]["what"].as_str().unwrap().contains("over plain UDP sockets"), "{row}");
        assert_eq!(row["writes"]["by_step"]["body"], 6.0, "{row}");
    }
    // Two trips through the kernel at least; memory that is shared is faster.
    assert!(one["floor"]["value"].as_f64().unwrap() > 2.0, "{one}");
    let made: f64 = window["writes"]["by_step"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
    assert!(window["floor"]["what"].as_str().unwrap().starts_with(&format!("{made:.1} writes")), "{window}");
    assert!(window["msgs_per_s"].as_f64().unwrap() > 1.0, "{document}");
}

#[test]
fn every_verb_is_measured_over_roce_beside_datagrams() {
    let here = run(["bench", "fabric", "-n", "100", "--rounds", "2", "--json"]).document("bench");
    let args = ["bench", "fabric", "--fabric", "roce", "-s", "2048", "-n", "200", "--rounds", "2", "--json"];
    let there = with_near_floors(&args);
    assert_eq!(there["environment"]["fabric"], "roce");
    let names = |document: &Value| rows(document).iter().map(|row| row["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&there), names(&here), "the same rows");
    let (apart, beside): (Vec<_>, Vec<_>) = rows(&there).iter().partition(|row| row["floor"].is_null());
    // A message of two packets goes in a run, of which single datagrams are no floor.
    assert!(apart.iter().all(|row| row["name"].as_str().unwrap().ends_with(", rate")), "{apart:?}");
    assert_eq!((apart.len(), beside.len()), (3, 9));
    for row in beside {
        let (what, value) = (row["floor"]["what"].as_str().unwrap(), row["floor"]["value"].as_f64().unwrap());
        assert!(what.contains("plain datagrams"), "{row}");
        assert!(what.contains("(2 a message"), "packets of 1024 bytes: {row}");
        // A trip through the kernel at least; memory that is shared is faster.
        assert!(value > 1.0, "{row}");
    }
}

#[test]
fn the_broadcast_is_measured_over_roce_beside_datagrams() {
    for (mode, reads) in [(&["--mode", "all"][..], true), (&["--mode", "lying-hosts", "--processes", "4"], false)] {
        let args = ["bench", "neb", "--fabric", "roce", "-n", "100", "--rounds", "2", "--window", "16", "--json"];
        let document = run(args.iter().chain(mode)).document("bench");
        assert_eq!(document["environment"]["fabric"], "roce");
        let [one, window] = rows(&document) else { panic!("{document}") };
        assert!(one["floor"]["what"].as_str().unwrap().contains("datagrams over plain UDP sockets"), "{one}");
        assert!(one["floor"]["value"].as_f64().unwrap() > 2.0, "{one}");
        assert!(one["p50_us"].as_f64().unwrap() > 2.0 && window["msgs_per_s"].as_f64().unwrap() > 1.0, "{document}");
        let what = window["floor"]["what"].as_str().unwrap();
        let made: Vec<f64> = what.split(' ').filter_map(|word| word.parse().ok()).take(2).collect();
        // Each receiver is written to; in mode `all` it reads what the others published.
        assert!(made[0] > 0.0 && (made[1] > 0.0 || !reads), "{what}");
    }
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn over_roce_whoever_is_killed_comes_back_and_every_property_holds() {
    let shape = ["--rounds", "2", "--sim-runs", "0", "--kill", "leader", "--rate", "100", "--timeout-ms", "400"];
    let ran = run(["bench", "failover", "--fabric", "roce", "--json"].into_iter().chain(shape));
    assert_eq!(ran.code, 0, "{}{}", ran.stderr, ran.stdout);
    let document = ran.document("bench");
    assert_eq!(document["environment"]["fabric"], "roce");
    let trial = &document["trial"];
    assert_eq!((&trial["kills"]["leader"], &trial["ok"]), (&2.into(), &true.into()), "{trial}");
    let [row] = rows(&document) else { panic!("{document}") };
    assert!(row["floor"]["what"].as_str().unwrap().contains("a datagram with a line"), "{row}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn v1_and_groups_of_other_sizes_are_measured_too() {
    let shape = ["--groups", "3", "--replicas", "1", "--dest", "2", "--window", "1", "--variant", "v1"];
    let args = ["bench", "multicast", "-n", "200", "--rounds", "2", "--json"];
    let document = run(args.into_iter().chain(shape)).document("bench");
    let [one] = rows(&document) else { panic!("{document}") };
    assert_eq!(one["writes"]["by_step"]["body"], 2.0);
    let shape = ["--replicas", "5", "--dest", "1", "--clients", "2", "--window", "8"];
    let document = run(args.into_iter().chain(shape)).document("bench");
    assert_eq!(rows(&document)[1]["writes"]["by_step"]["body"], 5.0);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn whoever_is_killed_comes_back_and_every_property_holds() {
    let shape = ["--groups", "2", "--rounds", "3", "--sim-runs", "3", "--kill", "any", "--seed", "5", "--rate", "200"];
    let ran = run(["bench", "failover", "--json"].into_iter().chain(shape));
    assert_eq!(ran.code, 0, "{}{}", ran.stderr, ran.stdout);
    let document = ran.document("bench");
    let trial = &document["trial"];
    let kills: u64 = trial["kills"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((kills, &trial["ok"]), (3, &true.into()), "{trial}");
    assert!(trial["messages"].as_u64() > Some(100) && trial["deliveries"].as_u64() > Some(300), "{trial}");
    let simulated = rows(&document).last().unwrap();
    assert_eq!((&simulated["iterations"], &simulated["floor"]["value"]), (&3.into(), &1000.0.into()));
    assert!(simulated["ratio"].as_f64().unwrap() <= 1.0, "{simulated}");
}

#[test]
fn a_fail_over_bench_does_not_overwrite() {
    let scratch = Scratch::new();
    scratch.file("precious", "");
    let keep = scratch.path("");
    run(["bench", "failover", "--keep", keep.to_str().unwrap()]).refused(&["not empty"]);
    assert_eq!(run(["bench", "failover", "--replicas", "2"]).code, 2, "nobody would be left");
    run(["bench", "load", "{}"]).refused(&["bench load"]);
}

#[test]
fn impossible_sizes_are_refused() {
    run(["bench", "fabric", "-s", "12"]).refused(&["12 bytes", "multiples of 8"]);
    run(["bench", "fabric", "--only", "SEND", "--only", "WRTE"])
        .refused(&["no row has \"WRTE\"", "SEND/RECV, one way"]);
    let one = ["bench", "fabric", "-n", "100", "--rounds", "1", "--only", "one way", "--only", "READ", "--json"];
    let names: Vec<_> =
        run(one).document("bench")["rows"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["SEND/RECV, one way", "READ, to completion", "WRITE_WITH_IMM inline signalled, one way"]);
    run(["bench", "multicast", "-s", "2000000"]).refused(&["2000000 bytes"]);
    run(["bench", "multicast", "--dest", "3"]).refused(&["3 of 2 groups", "--dest"]);
    run(["bench", "process", "{}"]).refused(&["bench process"]);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn the_switch_stands_beside_unicast_a_copier_and_connecting_anew() {
    let ran = run(["bench", "switch", "-n", "100", "--rounds", "1", "--json"]);
    let document = ran.document("bench");
    let names: Vec<_> = rows(&document).iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    let sender = document["switch"]["sender"].as_array().unwrap();
    for line in sender {
        let packets = if line["way"] == "switch" { 1.0 } else { line["receivers"].as_f64().unwrap() };
        assert_eq!((&line["packets"], &line["answers"]), (&packets.into(), &packets.into()), "{line}");
    }
    let bars = document["switch"]["bars"].as_array().unwrap();
    assert!(bars.len() >= 5, "{bars:?}");
    let all_hold = bars.iter().all(|bar| bar["ok"] == true);
    assert_eq!(ran.code, i32::from(!all_hold), "{bars:?}");
    run(["bench", "switch", "--only", "steppe"]).refused(&["no part has \"steppe\"", "aggregation"]);
    assert_eq!(run(["bench", "switch", "-s", "12"]).code, 2, "not a multiple of 8");
}

/// Processes of a bench, by the parent that is in their errand.
fn processes_of(parent: u32) -> usize {
    let word = format!("\"parent\":{parent},");
    let arguments = |entry: &fs::DirEntry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
    fs::read_dir("/proc").unwrap().flatten().filter(|entry| arguments(entry).contains(&word)).count()
}

#[test]
fn a_killed_bench_leaves_neither_processes_nor_files() {
    let scratch = Scratch::new();
    let directory = scratch.path("");
    let mut bench = stentor()
        .args(["bench", "multicast", "-D", "60"])
        .env("TMPDIR", &directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let since = Instant::now();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        while !done() {
            assert!(since.elapsed() < Duration::from_secs(30), "still not: {what}");
            sleep(Duration::from_millis(20));
        }
    };
    // Of the only directory that it makes, whose name is drawn at random.
    let sockets = || {
        let made = fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.path().join("bench"));
        made.filter_map(|sockets| fs::read_dir(sockets).ok()).flatten().count()
    };
    until("all processes are there", &|| sockets() >= 7);
    let parent = bench.id();
    assert_eq!(processes_of(parent), 7);
    bench.kill().unwrap();
    bench.wait().unwrap();
    until("all processes are gone", &|| processes_of(parent) == 0);
    until("all files are gone", &|| fs::read_dir(&directory).unwrap().count() == 0);
}
