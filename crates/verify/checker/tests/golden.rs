//! Hand-written histories with violations. The first line of `data/NAME.jsonl` lists the violations to find (`expect`,
//! and `expect_unchecked` where it matters). `data/NAME.txt` contains the counter-examples verbatim.

use std::fs;
use std::path::PathBuf;

use stentor_checker::{Report, Verdict, check_files};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn names() -> Vec<String> {
    let files = fs::read_dir(data()).unwrap().map(|entry| entry.unwrap().path());
    let histories = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let mut names: Vec<String> = histories.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn expected(name: &str, field: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(data().join(format!("{name}.jsonl"))).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let list = first.get(field)?.as_array().unwrap().iter();
    Some(list.map(|name| name.as_str().unwrap().to_owned()).collect())
}

fn report(name: &str) -> Report {
    check_files(&[data().join(format!("{name}.jsonl"))], false).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_hand_written_violation_is_found_by_name_and_nothing_else() {
    for name in names() {
        let report = report(&name);
        let found: Vec<&str> = report.violated().collect();
        assert_eq!(found, expected(&name, "expect").unwrap(), "{name}: {report:#?}");
        assert_eq!(report.ok(), found.is_empty());
        if let Some(unchecked) = expected(&name, "expect_unchecked") {
            assert_eq!(report.unchecked().map(|(name, _)| name).collect::<Vec<_>>(), unchecked, "{name}");
        }
    }
}

#[test]
fn every_property_has_a_history_that_breaks_it_and_one_that_does_not() {
    let broken: Vec<String> = names().iter().flat_map(|name| expected(name, "expect").unwrap()).collect();
    for property in ["M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "R1"] {
        assert!(broken.iter().any(|name| name == property), "no history breaks {property}");
        assert_eq!(report("ok_all").properties[property].as_str(), "ok", "{property}");
    }
    assert!(broken.iter().any(|name| name == "M12"), "no history breaks M12");
    assert_eq!(report("m12_ok_after_what_was_heard").properties["M12"].as_str(), "ok");
    assert!(!report("ok_all").properties.contains_key("M12"), "the history has no `heard` event");
    for property in ["B1", "B2", "B3", "B4", "B5", "B6", "B7"] {
        assert!(broken.iter().any(|name| name == property), "no history breaks {property}");
        assert_eq!(report("ok_broadcast").properties[property].as_str(), "ok", "{property}");
    }
    for property in ["C1", "C2", "C3", "C4", "C5"] {
        assert!(broken.iter().any(|name| name == property), "no history breaks {property}");
        assert_eq!(report("ok_channel").properties[property].as_str(), "ok", "{property}");
    }
}

/// Run with `UPDATE_GOLDEN=1` to rewrite the files.
#[test]
fn counter_examples_are_small_and_say_what_and_where() {
    let path = format!("{}/", data().display());
    for name in names() {
        let golden = data().join(format!("{name}.txt"));
        let report = report(&name);
        let Some(smallest) = &report.counter_example else {
            assert!(!golden.exists(), "{name} has a golden counter-example and none is found");
            continue;
        };
        let text: String =
            report.properties.iter().filter_map(|(name, verdict)| counter_example(name, verdict)).collect();
        assert!(text.contains(smallest.as_str()), "{name}");
        let text = text.replace(&path, "");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&golden).unwrap_or_default(), "{name}");
    }
}

fn counter_example(name: &str, verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Violated(example) => Some(format!("{name}: {example}\n")),
        Verdict::Ok | Verdict::NotChecked(_) | Verdict::Incomplete(_) => None,
    }
}
