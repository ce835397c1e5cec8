//! Clients that begin while a group is down.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{Running, SMALL, show_until};

/// Of two groups of three, one is down, and a member of the other.
#[test]
fn new_client_waits_for_a_majority_of_the_groups_that_it_multicasts_to_and_for_nobody_else() {
    let mut running = Running::with(&["g1.1", "g1.2", "g1.3"], 2, 3, SMALL);
    show_until(&running, "the group has begun", 1, |text| text.contains("3 of its 3 members stand by it"));
    running.signal("g1.3", Signal::KILL);
    let since = Instant::now();
    for n in 0..6 {
        let cast = running.cast(b"x\n", &["--to", "g1", "--timeout", "5"]);
        assert_eq!(cast.code, 0, "cast {n}: {}", cast.stderr);
    }
    assert!(since.elapsed() < Duration::from_secs(5), "six casts took {:?}", since.elapsed());
    // A place whose home is down cannot be had.
    let cast = running.cast(b"x\n", &["--to", "g1", "--client", "c1", "--timeout", "1"]);
    let absent = |text: &str| text.contains("not there after 1s: ") && text.contains("g2.1");
    assert!(cast.code == 1 && absent(&cast.stderr), "{}", cast.stderr);
    let both = running.cast(b"x\n", &["--to", "g1,g2", "--timeout", "1"]);
    assert!(both.code == 1 && both.stderr.contains("g2.1"), "{}", both.stderr);
}
