//! Tests of clients that begin while a group is down.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Running, SMALL, show_until};

/// The cluster has two groups of three. One group is down, and so is one member of the other.
#[test]
fn new_client_waits_only_for_majorities_of_its_destination_groups() {
    let mut running = Running::with(&["g1.1", "g1.2", "g1.3"], 2, 3, SMALL);
    show_until(&running, "the group has begun", 1, |text| text.contains("3 of its 3 members stand by it"));
    running.signal("g1.3", Signal::KILL);
    let since = Instant::now();
    for n in 0..6 {
        let cast = running.cast(b"x\n", &["--to", "g1", "--timeout", "5"]);
        assert_eq!(cast.code, 0, "cast {n}: {}", cast.stderr);
    }
    assert!(since.elapsed() < Duration::from_secs(5), "six casts took {:?}", since.elapsed());
    // A client id whose home group is down is not available.
    let cast = running.cast(b"x\n", &["--to", "g1", "--client", "c1", "--timeout", "1"]);
    let absent = |text: &str| text.contains("not there after 1s: ") && text.contains("g2.1");
    assert!(cast.code == 1 && absent(&cast.stderr), "{}", cast.stderr);
    let both = running.cast(b"x\n", &["--to", "g1,g2", "--timeout", "1"]);
    assert!(both.code == 1 && both.stderr.contains("g2.1"), "{}", both.stderr);
}
