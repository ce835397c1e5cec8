//! Tests of leadership: which member leads a group, and how the leadership moves.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::{PATIENCE, Running, SMALL, led};
use crate::support::run;

#[test]
fn leadership_moves_on_request_without_a_timeout() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let running = Running::with(&names, 1, 3, SMALL);
    let to = |name: &str| {
        let arguments = ["leader", "move", "--json", "--to", name].map(str::to_owned);
        run(arguments.into_iter().chain(running.meeting()))
    };
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
    let since = Instant::now();
    // Right after the start no election has named a leader yet.
    let mut taken = 0;
    for name in ["g1.2", "g1.3", "g1.3", "g1.1"] {
        let moved = loop {
            let moved = to(name);
            if moved.code == 0 || since.elapsed() > PATIENCE {
                break moved;
            }
        };
        assert_eq!(moved.code, 0, "{}", moved.stderr);
        let document = moved.document("leader-move");
        assert_eq!((&document["to"], led(&running)), (&name.into(), vec![name.to_owned()]));
        // The leadership moves in less than the shortest suspicious silence, which is one second.
        taken += u32::from(document["seconds"].as_f64().unwrap() < 1.0);
    }
    assert!(taken >= 3, "only {taken} of four were quick");
    assert_eq!(running.cast(b"two\n", &["--to", "g1"]).code, 0);
    for name in names {
        assert_eq!(running.delivered(name, 2)[1]["payload"], "two");
    }
    let shown = run(["leader", "show"].map(str::to_owned).into_iter().chain(running.meeting()));
    assert!(shown.code == 0 && shown.stdout.contains("g1.1") && shown.stdout.contains("leads"), "{}", shown.stdout);
}

#[test]
fn impossible_moves_are_refused() {
    let mut running = Running::with(&["g1.1", "g1.2", "g1.3"], 1, 3, SMALL);
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
    let ask = |running: &Running, arguments: &[&str]| {
        run(arguments.iter().map(|argument| (*argument).to_owned()).chain(running.meeting()))
    };
    ask(&running, &["leader", "move", "--to", "g9.1"]).refused(&["no process `g9.1`"]);
    ask(&running, &["leader", "move", "--to", "c0"]).refused(&["`c0` is a client"]);
    ask(&running, &["leader", "show", "--group", "g7"]).refused(&["no group `g7`"]);
    let leader = led(&running).pop().expect("a member leads");
    let other = ["g1.1", "g1.2", "g1.3"].into_iter().find(|name| *name != leader).unwrap();
    running.signal(other, Signal::KILL);
    let shown = ask(&running, &["leader", "show", "--json"]).document("leader-show");
    let members = shown["members"].as_array().unwrap();
    assert!(members.iter().any(|member| member["id"] == other && member["state"] == "down"), "{shown}");
    let since = Instant::now();
    // Until the other members notice that a member has just died, they may still nominate it. The election then passes
    // over that member.
    let refused = loop {
        let refused = ask(&running, &["leader", "move", "--to", other, "--timeout", "1"]);
        if refused.stderr.contains("does not answer, or waits") || since.elapsed() > PATIENCE {
            break refused;
        }
    };
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("ask again when it is up"), "{}", refused.stderr);
    for name in ["g1.1", "g1.2", "g1.3"].into_iter().filter(|name| *name != other) {
        running.signal(name, Signal::TERM);
    }
    let nobody = ask(&running, &["leader", "move", "--to", other]);
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("nobody leads `g1`; 0 of its 3 members answer"), "{}", nobody.stderr);
    assert_eq!(ask(&running, &["leader", "show"]).code, 1);
    assert!(!running.path("run").exists(), "a failed command leaves nothing behind");
}

/// Right after the start the leadership moves on the first request. A leader that is asked to stop hands over first.
/// Neither waits for the shortest suspicious silence, which is one second.
#[test]
fn young_group_moves_its_leader_and_a_stopping_leader_hands_over() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let mut running = Running::with(&names, 1, 3, SMALL);
    for name in names {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    let leader = led(&running).pop().expect("a member leads");
    let other = names.into_iter().find(|name| *name != leader).unwrap();
    let moved = run(["leader", "move", "--to", other].map(str::to_owned).into_iter().chain(running.meeting()));
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    for name in [other, "g1.1", "g1.2", "g1.3"] {
        let stopped = led(&running).pop().filter(|leader| leader != name).unwrap_or_else(|| name.to_owned());
        assert_eq!(running.signal(&stopped, Signal::TERM), Some(0));
        let said = running.read(&stopped, "err");
        let heir = said.lines().rev().find_map(|line| line.split_once("told to stop: hands over to "));
        let (_, heir) = heir.unwrap_or_else(|| panic!("{stopped} does not hand over: {said}"));
        // The leader ended only after another member led. No timeout has passed since.
        assert_eq!(led(&running), [heir], "{said}");
        running.start(&stopped, &[]);
        running.until(&stopped, "err", |text| text.contains("all members are connected"));
    }
    assert_eq!(running.cast(b"one\n", &["--to", "g1"]).code, 0);
}

#[test]
fn leader_whose_input_ends_does_not_hand_over() {
    let mut running = Running::new(1, 3, SMALL);
    let names = ["g1.1", "g1.2", "g1.3"];
    names.iter().for_each(|name| running.start(name, &["--until-eof"]));
    let leads = |name: &&&str| running.read(name, "err").contains(&format!(": {name} leads\n"));
    let since = Instant::now();
    let leader = loop {
        if let Some(leader) = names.iter().find(leads) {
            break *leader;
        }
        assert!(since.elapsed() < PATIENCE, "{}", running.read("g1.1", "err"));
        std::thread::sleep(Duration::from_millis(5));
    };
    running.end_input(leader);
    let log = running.until(leader, "err", |text| text.contains("stopped after 0 deliveries"));
    assert!(!log.contains("hands over") && !log.contains("told to stop"), "{log}");
}
