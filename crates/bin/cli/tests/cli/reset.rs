//! Tests of `stentor group reset`.

use rustix::process::Signal;

use super::cluster::{Running, SMALL};
use super::support::run;

/// Two of three members lose their memory. The command lists what is left and what would be lost, and the operator
/// resets the group.
#[test]
fn group_that_lost_its_majority_goes_on_after_a_reset() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let mut running = Running::with(&names, 1, 3, SMALL);
    let cast = |running: &Running, text: &str| running.cast(text.as_bytes(), &["--to", "g1", "--timeout", "20"]).code;
    assert_eq!(cast(&running, "one\n"), 0);
    running.delivered("g1.2", 1);
    for name in ["g1.1", "g1.3"] {
        running.signal(name, Signal::KILL);
    }
    for name in ["g1.1", "g1.3"] {
        running.start(name, &[]);
    }
    running.until("g1.1", "err", |text| text.contains("2 of 3 members of g1 have no memory of it"));
    let reset = |running: &Running, how: &[&str]| {
        let args = ["group", "reset", "--group", "g1", "--json"].iter().chain(how).map(|arg| (*arg).to_owned());
        run(args.chain(running.meeting()))
    };
    // The three deliveries include the opening and the end of the cast's session.
    let told = reset(&running, &[]);
    assert_eq!(told.code, 2, "{}", told.stderr);
    assert!(told.stderr.contains("g1.2 has delivered 3 in incarnation 1-"), "{}", told.stderr);
    let known = told.stderr.split("--ends ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let ends = known.expect("the message has the arguments to type").to_owned();
    let wrong = reset(&running, &["--ends", "7-00000000", "--from", "g1.2"]);
    assert!(
        wrong.code == 1 && wrong.stderr.contains(&format!("the group is in incarnation {ends}")),
        "{}",
        wrong.stderr
    );
    assert_eq!(reset(&running, &["--ends", "7", "--from", "g1.2"]).code, 2);
    let done = reset(&running, &["--ends", &ends, "--from", "g1.2"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let document = done.document("group-reset");
    assert_eq!((&document["ended"], &document["leader"]), (&ends.into(), &"g1.2".into()));
    assert!(document["incarnation"].as_str().is_some_and(|incarnation| incarnation.starts_with("2-")), "{document:#}");
    assert_eq!(cast(&running, "two\n"), 0);
    assert_eq!(running.delivered("g1.2", 2)[1]["payload"], "two");
    for name in names {
        running.until(name, "out", |text| text.contains("\"payload\":\"two\""));
    }
}
