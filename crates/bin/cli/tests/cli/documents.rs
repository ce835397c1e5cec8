//! `stentor completions`, `stentor man`, and the JSON schemas.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::{Scratch, run, violations};

#[test]
fn completions_know_the_commands_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(["completions", shell]);
        assert_eq!(ran.code, 0);
        for word in ["stentor", "doctor", "config", "force"] {
            assert!(ran.stdout.contains(word), "{shell} does not know `{word}`");
        }
        let document = run(["completions", shell, "--json"]).document("completions");
        assert_eq!(document["script"], ran.stdout);
        assert_eq!(run(["completions", shell, "-q"]).stdout, ran.stdout, "what was asked for is printed");
    }
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let scratch = Scratch::new();
    let directory = scratch.path("");
    let ran = run(["man", "-o", directory.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let mut names: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let document = run(["man", "--json"]).document("man");
    let pages = document["pages"].as_array().unwrap();
    let mut told: Vec<_> = pages.iter().map(|page| page["name"].as_str().unwrap()).collect();
    told.sort_unstable();
    assert_eq!(names, told);
    for name in ["stentor.1", "stentor-config-init.1", "stentor-doctor.1", "stentor-man.1"] {
        assert!(told.contains(&name), "{told:?}");
    }
    for page in pages {
        let text = page["text"].as_str().unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
        assert_eq!(text, fs::read_to_string(directory.join(page["name"].as_str().unwrap())).unwrap());
    }
    run(["man", "-o", "/no/such/place"]).refused(&["cannot write", "/no/such/place"]);
}

#[test]
fn every_schema_is_valid_and_refuses_another_document() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".json").expect("only schemas lie here");
        let text =
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schema/{name}.json"))).unwrap();
        assert!(jsonschema::meta::is_valid(&serde_json::from_str(&text).unwrap()), "{name}");
        assert!(!violations(name, &json!({})).is_empty(), "{name} accepts everything");
        assert!(!violations(name, &json!({"surprise": 1})).is_empty(), "{name} accepts everything");
        count += 1;
    }
    assert!(count >= 6, "{count} schemas");
}
