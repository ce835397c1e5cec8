//! `stentor sim neb`, `demo --neb`, `bench neb`, and `check` of a broadcast's history.

use crate::support::{Scratch, run};

#[test]
fn a_campaign_of_the_broadcast_tells_what_it_ran() {
    let document = run(["sim", "neb", "--seeds", "0..6", "--json"]).document("sim");
    assert_eq!((&document["ok"], &document["violations"]), (&true.into(), &0.into()), "{document:#}");
    assert!(document["counts"]["suspicions"].is_u64(), "{document:#}");
    let one = run(["sim", "neb", "--seed", "3", "--json"]).document("sim");
    assert!(one["scenario"]["profile"].is_string() && one["properties"]["B1"] == "ok", "{one:#}");
}

#[test]
fn five_processes_agree_although_one_lies_and_the_evidence_is_shown() {
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
fn a_bench_of_the_broadcast_has_a_floor_for_each_row() {
    let ran = run(["bench", "neb", "-n", "700", "--signed", "--window", "8", "--json"]);
    let document = ran.document("bench");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{document:#}");
    assert!(rows.iter().all(|row| row["floor"]["value"].as_f64().unwrap() > 0.0), "{document:#}");
}
