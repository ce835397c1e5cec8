//! `stentor roce pingpong`, both sides ours.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Ran, Scratch, ran, run, stentor};

/// An address that no other test has.
fn address(last: u8) -> String {
    format!("127.214.{}.{last}", std::process::id() % 251)
}

fn client(from: u8, to: &str, more: &[&str]) -> Ran {
    run([&["roce", "pingpong", to, "--bind", &address(from)], more].concat())
}

#[test]
fn both_sides_can_be_this_command_and_lose_packets() {
    let scratch = Scratch::new();
    let network = ["--drop-chance", "0.02", "--duplicate-chance", "0.02", "--reorder-chance", "0.02", "-n", "200"];
    for (round, bad) in [&network[6..], &network[..]].into_iter().enumerate() {
        let file = |side: &str| scratch.path(&format!("{side}{round}.pcap"));
        let capture = |side: &str| format!("--pcap={}", file(side).display());
        let mut server = stentor();
        server.args(["roce", "pingpong", "--bind", &address(1), "--json", &capture("server")]).args(bad);
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let other = client(2, &address(1), &[bad, &["--json", &capture("client")]].concat());
        let server = ran(&server.wait_with_output().unwrap());
        for (role, side) in [("server", server), ("client", other)] {
            assert_eq!(side.code, 0, "{role}: {}", side.stderr);
            let report = side.document("roce-pingpong");
            assert_eq!((&report["role"], &report["iterations"]), (&role.into(), &200.into()), "{report:#}");
            assert_eq!(report["injected"]["lost"].as_u64() > Some(0), round == 1, "{report:#}");
            assert!(fs::metadata(file(role)).unwrap().len() > 200 * 2 * 4096);
        }
    }
}

/// And not when the other side has come, or has not come for 20 seconds.
#[test]
fn what_is_wrong_on_this_side_is_said_at_once() {
    let scratch = Scratch::new();
    let since = Instant::now();
    let wrong = |more: &[&str]| client(3, &address(4), more);
    for words in [["-m", "1000"], ["-m", "0"], ["-p", "0"], ["-s", "0"], ["-n", "0"], ["--drop-chance", "nan"]] {
        let refused = wrong(&words);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{words:?}");
        assert!(refused.stderr.contains(words[1]), "{}", refused.stderr);
    }
    assert!(wrong(&["-m", "1000"]).stderr.contains("256, 512, 1024, 2048, 4096"));
    let capture = scratch.file("there.pcap", "mine");
    wrong(&["--pcap", capture.to_str().unwrap()]).refused(&["exists already"]);
    assert_eq!(fs::read_to_string(capture).unwrap(), "mine");
    let nowhere = scratch.path("no/such.pcap");
    wrong(&["--pcap", nowhere.to_str().unwrap()]).refused(&["such.pcap", "may write"]);
    run(["roce", "pingpong", "--bind", "192.0.2.1"]).refused(&["192.0.2.1", "--bind"]);
    assert!(since.elapsed() < Duration::from_secs(15));
}

/// Whoever comes too early tries again with the same words.
#[test]
fn who_finds_nobody_leaves_no_capture() {
    let scratch = Scratch::new();
    let capture = scratch.path("run.pcap");
    let alone = client(5, "no host", &["--pcap", capture.to_str().unwrap()]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("cannot find no host"), "{}", alone.stderr);
    assert!(!capture.exists());
}
