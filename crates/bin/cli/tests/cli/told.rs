//! Tests of the log lines of running members about each other.

use std::time::Duration;

use rustix::process::Signal;

use crate::cluster::{Running, SMALL, led};

/// A majority works all the time. Without the log line the stopped member would go unnoticed until another one fails.
#[test]
fn stopped_member_is_reported_by_the_others_and_by_itself() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let running = Running::with(&names, 1, 3, SMALL);
    for name in names {
        running.until(name, "err", |text| text.contains("all members are connected"));
    }
    let leader = led(&running).pop().expect("a member leads");
    let follower = names.into_iter().find(|name| *name != leader).unwrap();
    let pid = running.pid(follower);
    running.interrupt(follower, Signal::STOP);
    let why = format!("stopped (`kill -CONT {pid}`) or very busy; g1 goes on: 2 of");
    for name in names.into_iter().filter(|name| *name != follower) {
        let silent = format!("warn {name}: {follower} (pid {pid}) is there and has been silent for ");
        let told = |line: &str| line.contains(&silent) && line.contains(&why);
        running.until(name, "err", |text| text.lines().any(told));
    }
    running.interrupt(follower, Signal::CONT);
    for name in names.into_iter().filter(|name| *name != follower) {
        let again = format!("info {name}: {follower} answers again after ");
        let said = running.until(name, "err", |text| text.contains(&again));
        assert_eq!(said.matches(&format!("{follower} (pid {pid}) is there and has been silent")).count(), 1, "{said}");
    }
    running.until(follower, "err", |text| text.contains("this process did not run for "));
}

/// The running members distinguish a rolling restart from a crash.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn members_stopped_in_order_are_not_reported_lost() {
    let names = ["g1.1", "g1.2", "g1.3"];
    let mut running = Running::with(&names, 1, 3, SMALL);
    let connected = |text: &str| text.contains("all members are connected");
    // Members recognize an orderly stop only if they have seen the stopped member running before.
    let a_moment = Duration::from_millis(500);
    names.into_iter().for_each(|name| drop(running.until(name, "err", connected)));
    let mut told = 0;
    // On a busy machine the other members may not poll in time.
    for name in names.into_iter().cycle().take(9) {
        std::thread::sleep(a_moment);
        let pid = running.pid(name);
        assert_eq!(running.signal(name, Signal::TERM), Some(0));
        let other = names.into_iter().find(|other| *other != name).expect("the group has three members");
        let in_order = format!("info {other}: {name}, pid {pid}, was stopped in order; g1 goes on: 2 of");
        let lost = format!("lost {name}, pid {pid}");
        let said = running.until(other, "err", |text| text.contains(&in_order) || text.contains(&lost));
        told += u32::from(said.contains(&in_order));
        running.start(name, &[]);
        running.until(name, "err", connected);
        if told == 3 {
            break;
        }
    }
    assert_eq!(told, 3, "leaders and followers");
    std::thread::sleep(a_moment);
    let pid = running.pid("g1.2");
    running.signal("g1.2", Signal::KILL);
    let said =
        running.until("g1.1", "err", |text| text.contains(&format!("warn g1.1: lost g1.2, pid {pid}; g1 goes on")));
    assert!(!said.contains(&format!("pid {pid}, was stopped in order")), "{said}");
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn member_in_another_directory_is_reported_with_that_directory() {
    let mut running = Running::with(&["g1.1", "g1.2"], 1, 3, SMALL);
    let by_hand = running.path("by-hand");
    running.start("g1.3", &["--directory", by_hand.to_str().unwrap()]);
    let pid = running.pid("g1.3");
    let runs = format!("g1.3 runs on this host as pid {pid}, with configuration ");
    let remedy = format!(" and sockets in {}: start both with the same --directory\n", by_hand.display());
    let says =
        |line: &str, what: &str| line.contains(what) && format!("{line}\n").ends_with(&remedy) && line.contains(&runs);
    let begins = "g1 begins when all its members are there: g1.3 runs";
    let said = running.until("g1.1", "err", |text| text.lines().any(|line| says(line, begins)));
    assert!(!said.contains("start g1.3"), "{said}");
    running.until("g1.1", "err", |text| text.lines().any(|line| says(line, "waiting for g1.3")));
}
