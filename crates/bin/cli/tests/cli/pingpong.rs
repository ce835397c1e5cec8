//! Tests of `stentor roce pingpong` with this command on both sides.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Ran, Scratch, ran, run, stentor};

/// Returns an address that no other test uses.
fn address(last: u8) -> String {
    format!("127.214.{}.{last}", std::process::id() % 251)
}

fn client(from: u8, to: &str, more: &[&str]) -> Ran {
    run([&["roce", "pingpong", to, "--bind", &address(from)], more].concat())
}

#[test]
fn pingpong_with_itself_survives_packet_loss() {
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

/// An error on this side is reported before the peer connects, and not only after the timeout of 20 seconds.
#[test]
fn local_errors_are_reported_before_the_peer_connects() {
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
    wrong(&["--pcap", nowhere.to_str().unwrap()]).refused(&["such.pcap", "make its directory first"]);
    run(["roce", "pingpong", "--bind", "192.0.2.1"]).refused(&["192.0.2.1", "--bind"]);
    assert!(since.elapsed() < Duration::from_secs(15));
}

/// A client that starts too early can be run again with the same arguments.
#[test]
fn client_without_a_server_leaves_no_capture() {
    let scratch = Scratch::new();
    let capture = scratch.path("run.pcap");
    let alone = client(5, "no host", &["--pcap", capture.to_str().unwrap()]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("cannot find no host"), "{}", alone.stderr);
    assert!(!capture.exists());
}
