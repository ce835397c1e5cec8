//! Tests of `stentor sim`.

use std::fs;

use crate::support::{Scratch, run};

#[test]
fn simulation_run_reports_its_seeds_and_faults() {
    let document = run(["sim", "multicast", "--seeds", "0..6", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["seeds"]), (&true.into(), &6.into()));
    assert_eq!((&document["violations"], document["first_violation"].is_null()), (&0.into(), true));
    assert!(document["messages"].as_u64().unwrap() >= 6 * 200, "{document:#}");
    assert!(document["deliveries"].as_u64() > document["messages"].as_u64(), "{document:#}");
    assert!(document["faults"]["torn_writes"].as_u64().unwrap() > 0, "{document:#}");
    let ran = run(["sim", "multicast", "--seeds", "0..6"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    for part in ["6 seeds, ", "torn writes", "every property held in every seed"] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
}

#[test]
fn seed_and_its_trace_do_not_depend_on_concurrent_seeds() {
    let scratch = Scratch::new();
    let [first, second, other] = ["first", "second", "other"].map(|name| scratch.path(name));
    let trace = |seed: &str, path: &std::path::Path| {
        let ran = run(["sim", "multicast", "--seed", seed, "--trace", path.to_str().unwrap(), "--json"]);
        (ran.document("sim"), fs::read(path).unwrap())
    };
    let ((told, traced), (again, same), (_, different)) = (trace("7", &first), trace("7", &second), trace("8", &other));
    assert_eq!(traced, same);
    assert_ne!(traced, different);
    assert_eq!(told["scenario"], again["scenario"]);
    assert_eq!(told["properties"]["M4"], "ok");
    let alone = run(["sim", "multicast", "--seeds", "7..8", "--json"]).document("sim");
    for key in ["messages", "deliveries", "steps", "writes", "faults"] {
        assert_eq!(told[key], alone[key], "{key}");
    }
    let opened: serde_json::Value = serde_json::from_slice(&traced).expect("a trace is JSON");
    assert!(opened["traceEvents"].as_array().unwrap().len() > 1000);
}

/// The hashes of a seed are those of its transcripts, whether the seed runs alone or among others.
#[test]
fn hashes_match_the_transcripts() {
    let scratch = Scratch::new();
    let (hashes, transcript) = (scratch.path("hashes"), scratch.path("transcript"));
    for (simulation, names) in [
        ("multicast", ["trace", "history"]),
        ("neb", ["trace", "history"]),
        ("channel", ["trace", "history"]),
        ("switch", ["packets", "registers"]),
        ("sessions", ["trace", "history"]),
    ] {
        run(["sim", simulation, "--seeds", "6..9", "-q", "--hashes", hashes.to_str().unwrap()]);
        run(["sim", simulation, "--seed", "7", "-q", "--transcript", transcript.to_str().unwrap()]);
        let text = fs::read_to_string(&transcript).unwrap();
        let (first, second) = text.split_once(&format!("# {}\n", names[1])).unwrap();
        let first = first.strip_prefix(&format!("# {}\n", names[0])).unwrap();
        assert!(first.lines().count() > 10 && second.lines().count() > 10, "{simulation}");
        let [first, second] = [first, second].map(|text| xxhash_rust::xxh3::xxh3_64(text.as_bytes()));
        let lines = fs::read_to_string(&hashes).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[0], format!("seed {} {}", names[0], names[1]));
        assert_eq!((lines.len(), lines[2]), (4, format!("7 {first:016x} {second:016x}").as_str()), "{simulation}");
    }
}

#[test]
fn profile_injects_faults_and_is_named_in_the_report() {
    let document = run(["sim", "multicast", "--profile", "all", "--seeds", "0..6", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["profile"]), (&true.into(), &"all".into()), "{document:#}");
    assert!(document["faults"]["leader_crashes"].as_u64().unwrap() > 0, "{document:#}");
    let (most, bound) = (document["most_recovery_steps"].as_u64().unwrap(), &document["recovery_steps_bound"]);
    assert!(most > 0 && most < bound.as_u64().unwrap(), "{document:#}");
    let alone = run(["sim", "multicast", "--profile", "all", "--seed", "3"]);
    for part in ["profile all: at most ", "the faults stop", "M10"] {
        assert!(alone.stdout.contains(part), "{}", alone.stdout);
    }
    let [plain, calm] = [&[][..], &["--profile", "calm"]]
        .map(|more| run(["sim", "multicast", "--seed", "3", "--json"].iter().chain(more)).document("sim"));
    assert!(plain.get("profile").is_none() && plain.get("happened").is_none(), "{plain:#}");
    assert_eq!((&plain["steps"], &plain["faults"]), (&calm["steps"], &calm["faults"]));
}

#[test]
fn channels_are_simulated() {
    let document = run(["sim", "channel", "--seeds", "0..8", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["violations"]), (&true.into(), &0.into()), "{document:#}");
    assert!(document["counts"]["completions told before earlier ones"].as_u64().unwrap() > 0, "{document:#}");
    let one = run(["sim", "channel", "--seed", "1", "--json"]).document("sim");
    assert!(one["scenario"]["scheme"].is_string() && one["properties"]["C1"] == "ok", "{one:#}");
    assert!(run(["sim", "channel", "--seed", "1"]).stdout.contains("callback order"));
}

#[test]
fn switch_is_simulated() {
    let document = run(["sim", "switch", "--seeds", "0..8", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["violations"]), (&true.into(), &0.into()), "{document:#}");
    assert!(document["deliveries"].as_u64().unwrap() > 100, "{document:#}");
    let one = run(["sim", "switch", "--seed", "1", "--json"]).document("sim");
    assert!(one["scenario"]["aggregation"].is_string() && one["properties"]["S1"] == "ok", "{one:#}");
    assert!(run(["sim", "switch", "--seed", "1"]).stdout.contains("ack soundness"));
}

#[test]
fn sessions_are_simulated() {
    let document = run(["sim", "sessions", "--seeds", "0..8", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["violations"]), (&true.into(), &0.into()), "{document:#}");
    assert!(document["counts"]["sessions_opened"].as_u64().unwrap() > 0, "{document:#}");
    let one = run(["sim", "sessions", "--seed", "1", "--json"]).document("sim");
    assert!(one["scenario"]["sessions_per_group"].is_u64() && one["properties"]["X1"] == "ok", "{one:#}");
    assert!(run(["sim", "sessions", "--seed", "1"]).stdout.contains("at most once"));
}

#[test]
fn bad_seeds_and_paths_are_refused() {
    for (args, part) in [
        (vec!["--seeds", "9..3"], "has no seeds"),
        (vec!["--seeds", "many"], "0..1000"),
        (vec!["--seed", "1", "--seeds", "0..3"], "cannot be used with"),
        (vec!["--trace", "t.json"], "--seed <N>"),
        (vec!["--profile", "storm"], "there is no profile `storm`; there are calm, failover"),
    ] {
        let ran = run(["sim", "multicast"].iter().chain(&args));
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.stderr.contains(part), "{args:?}: {}", ran.stderr);
    }
    run(["sim", "multicast", "--seed", "1", "--trace", "/no/such/place"]).refused(&["cannot write", "/no/such/place"]);
}

#[cfg(not(feature = "plants"))]
#[test]
fn default_build_has_no_mutants() {
    for args in [["--plants"].as_slice(), &["--plant", "no-fifo"]] {
        assert_eq!(run(["sim", "multicast"].iter().chain(args)).code, 2, "{args:?}");
    }
}

#[cfg(feature = "plants")]
#[test]
fn mutant_is_found_by_name_and_can_be_reproduced() {
    let names = run(["sim", "multicast", "--plants", "--json"]);
    let names: Vec<String> = serde_json::from_str(&names.stdout).unwrap();
    assert!(names.len() >= 8 && names.iter().any(|name| name == "no-fifo"), "{names:?}");
    let campaign = ["sim", "multicast", "--seeds", "0..1000", "--plant", "no-fifo"];
    let found = run(campaign.iter().chain(&["--json"]));
    assert_eq!(found.code, 1);
    let first = &found.document("sim")["first_violation"];
    assert_eq!(first["property"], "M6", "{first:#}");
    let line = first["reproduce"].as_str().unwrap().strip_prefix("stentor ").unwrap();
    let again = run(line.split(' ').chain(["--json"]));
    assert_eq!(again.code, 1);
    assert_eq!(again.document("sim")["properties"]["M6"], "violated");
    let ran = run(campaign);
    assert!(ran.stdout.contains(&format!("REPRODUCE WITH: stentor {line}\n")), "{}", ran.stdout);
    run(["sim", "multicast", "--plant", "no-such"]).refused(&["no mutant `no-such`", "--plants"]);
}
