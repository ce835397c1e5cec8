//! A group whose history began anew while another group continued: the properties within each history, and across.

use stentor_checker::Report;
use stentor_checker::history::check_inputs;

const CLUSTER: &str =
    r#"{"e":"cluster","groups":{"g1":["a","b"],"g2":["x","y"]},"clients":["c","d"],"clock":"global"}"#;
const FIRST: &str = "1-0000000a";
const SECOND: &str = "2-0000000b";

fn multicast(t: u64, client: &str, life: u64, sequence: u64, to: &[&str]) -> String {
    let hash = format!("{:016x}", hash(client, sequence));
    format!(
        r#"{{"t":{t},"p":"{client}","i":{life},"e":"multicast","m":["{client}","{sequence}"],"to":{to:?},"len":1,"hash":"{hash}"}}"#
    )
}

fn hash(client: &str, sequence: u64) -> u64 {
    u64::from(client.as_bytes()[0]) << 32 | sequence
}

/// Returns the line of a delivery at this time of the order, under a ballot of this incarnation.
fn deliver(t: u64, p: (&str, u64), n: u64, (client, sequence): (&str, u64), time: u64, incarnation: u64) -> String {
    let (group, leader) = if ["a", "b"].contains(&p.0) { ("g1", "a") } else { ("g2", "x") };
    let (hash, ballot) = (format!("{:016x}", hash(client, sequence)), (incarnation << 32) + 1);
    format!(
        r#"{{"t":{t},"p":"{}","i":{},"e":"deliver","m":["{client}","{sequence}"],"g":"{group}","n":{n},"ts":[{time},"g1"],"hash":"{hash}","ballot":[{ballot},"{leader}"]}}"#,
        p.0, p.1
    )
}

fn recover(t: u64, p: (&str, u64), from: u64) -> String {
    format!(r#"{{"t":{t},"p":"{}","i":{},"e":"recover","from":{from}}}"#, p.0, p.1)
}

fn begun(t: u64, p: (&str, u64), incarnation: &str, kept: u64) -> String {
    let group = if ["a", "b"].contains(&p.0) { "g1" } else { "g2" };
    let after = if kept > 0 { format!(r#","after":"{FIRST}""#) } else { String::new() };
    format!(
        r#"{{"t":{t},"p":"{}","i":{},"e":"begun","g":"{group}","in":"{incarnation}","kept":{kept}{after}}}"#,
        p.0, p.1
    )
}

fn epoch(t: u64, life: u64, incarnation: u64) -> String {
    let ballot = (incarnation << 32) + 1;
    format!(r#"{{"t":{t},"p":"a","i":{life},"e":"epoch","g":"g1","ballot":[{ballot},"a"],"leader":"a"}}"#)
}

/// Judges these lines, sorted by their times.
fn judge(lines: &[Vec<String>]) -> Report {
    let mut lines: Vec<String> = lines.concat();
    let t = |line: &String| line[5..].split(',').next().and_then(|t| t.parse::<u64>().ok()).expect("a time");
    lines.sort_by_key(t);
    let text = format!("{CLUSTER}\n{}\n{{\"e\":\"complete\"}}\n", lines.join("\n"));
    check_inputs([("h.jsonl".to_owned(), text.as_bytes())], false).expect("a history")
}

fn violated(report: &Report) -> Vec<&str> {
    report.violated().collect()
}

/// Returns the lines of the first history: all members deliver the first message of `c`, which is to both groups.
fn first() -> Vec<String> {
    let mut lines = vec![multicast(1, "c", 1, 1, &["g1", "g2"]), epoch(1, 1, 1)];
    for p in ["a", "b", "x", "y"] {
        lines.push(begun(0, (p, 1), FIRST, 0));
        lines.push(deliver(10, (p, 1), 1, ("c", 1), 5, 1));
    }
    lines
}

/// Returns the lines of a reset of `g1` without state, after which both groups deliver a message of a client that began
/// later.
fn lines_of_reset() -> Vec<String> {
    let mut lines = vec![epoch(51, 2, 2), multicast(60, "d", 1, 1, &["g1", "g2"])];
    for p in ["a", "b"] {
        lines.extend([recover(50, (p, 2), 0), begun(50, (p, 2), SECOND, 0)]);
        lines.push(deliver(70, (p, 2), 1, ("d", 1), 65, 2));
    }
    lines.extend(["x", "y"].map(|p| deliver(70, (p, 1), 2, ("d", 1), 65, 1)));
    lines
}

#[test]
fn a_reset_of_a_group_violates_nothing() {
    let report = judge(&[first(), lines_of_reset()]);
    assert_eq!((violated(&report), report.undecided()), (vec![], None), "{report:#?}");
    for property in ["M1", "M2", "M3", "M4", "M5", "M6", "M9", "M10", "R1"] {
        assert_eq!(report.properties[property].as_str(), "ok", "{property}: {report:#?}");
    }
    // Without `begun` events the checker cannot recognize the reset and reports that the group lost its deliveries.
    let silent = |lines: Vec<String>| lines.into_iter().filter(|line| !line.contains("begun")).collect::<Vec<_>>();
    assert_eq!(violated(&judge(&[silent(first()), silent(lines_of_reset())])), ["M11", "M2", "M3", "M5", "M9"]);
}

#[test]
fn a_message_to_an_ended_history_is_delivered_by_all_others_or_by_none() {
    // No process delivers message 2 of client `c`, although the client stays up. Message 3 of `c` goes to `g2` alone
    // and is delivered: the checker does not report the missing message 2 as a gap.
    let lost = vec![multicast(20, "c", 1, 2, &["g1", "g2"]), multicast(21, "c", 1, 3, &["g2"])];
    let next = |who: &[&str]| who.iter().map(|p| deliver(80, (p, 1), 3, ("c", 3), 75, 1)).collect::<Vec<_>>();
    let report = judge(&[first(), lines_of_reset(), lost.clone(), next(&["x", "y"])]);
    assert_eq!(violated(&report), Vec::<&str>::new(), "{report:#?}");
    // A message to the other group alone must be delivered.
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), lost.clone()])), ["M3", "M9"]);
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), lost, next(&["x"])])), ["M2", "M3", "M9"]);
    // A member of the lost group had delivered the message, so all other destinations must.
    let delivered = vec![deliver(30, ("a", 1), 2, ("c", 2), 25, 1)];
    let settled = |who: &[&str], time| {
        let two = who.iter().map(|p| deliver(55, (p, 1), 2, ("c", 2), time, 1));
        let later = who.iter().map(|p| deliver(80, (p, 1), 3, ("d", 1), 65, 1));
        two.chain(later).collect::<Vec<_>>()
    };
    let one = vec![multicast(20, "c", 1, 2, &["g1", "g2"])];
    let without = |lines: Vec<String>| {
        lines
            .into_iter()
            .filter(|line| !line.contains(r#""t":70,"p":"x""#) && !line.contains(r#""t":70,"p":"y""#))
            .collect::<Vec<_>>()
    };
    let with = |rest: Vec<String>| judge(&[first(), without(lines_of_reset()), one.clone(), delivered.clone(), rest]);
    assert_eq!(violated(&with(settled(&["x", "y"], 25))), Vec::<&str>::new());
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), one.clone(), delivered.clone()])), ["M2"]);
    // No member of the lost group is up any more in the ended history.
    let crash = |p| format!(r#"{{"t":45,"p":"{p}","i":1,"e":"crash"}}"#);
    let crashed = ["a", "b"].map(crash).to_vec();
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), one.clone(), delivered.clone(), crashed])), ["M2"]);
    assert_eq!(violated(&with(settled(&["x", "y"], 26))), ["M5"], "another timestamp");
}

#[test]
fn the_properties_hold_within_each_history() {
    // Two members of the new history have different messages under one number.
    let other = vec![
        multicast(61, "d", 1, 2, &["g1"]),
        deliver(71, ("a", 2), 2, ("d", 2), 66, 2),
        multicast(62, "d", 1, 3, &["g1"]),
        deliver(72, ("b", 2), 2, ("d", 3), 67, 2),
    ];
    let report = judge(&[first(), lines_of_reset(), other]);
    assert!(violated(&report).contains(&"M5"), "{report:#?}");
    // A multicast of a client that began after the reset must be delivered.
    let missing = vec![multicast(61, "d", 1, 2, &["g1"]), deliver(71, ("a", 2), 2, ("d", 2), 66, 2)];
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), missing])), ["M2", "M3", "M9"]);
    // The message must also be delivered if no process has delivered it.
    let nowhere = vec![multicast(61, "d", 1, 2, &["g1"])];
    assert_eq!(violated(&judge(&[first(), lines_of_reset(), nowhere])), ["M3", "M9"]);
}

#[test]
fn more_histories_than_can_be_judged_are_no_violation() {
    let resets =
        |most: u64| (2..=most).map(|n| begun(100 + n, ("b", 1), &format!("{n}-0000000b"), 0)).collect::<Vec<_>>();
    // `g1` has 255 histories here, and `g2` has one, which counts, too.
    assert_eq!(judge(&[first(), resets(255)]).undecided(), None);
    let report = judge(&[first(), resets(256)]);
    assert_eq!(violated(&report), Vec::<&str>::new());
    assert!(report.undecided().is_some_and(|why| why.contains("257 histories, and at most 256")), "{report:#?}");
}

/// `b` continues with its deliveries. `a` had delivered more; it ends and is admitted again.
#[test]
fn a_reset_with_a_state_keeps_exactly_its_deliveries() {
    let mut first = first();
    first.extend([multicast(11, "c", 1, 2, &["g1"]), deliver(20, ("a", 1), 2, ("c", 2), 15, 1)]);
    let goes_on = |from, number| {
        let mut lines = vec![begun(50, ("b", 1), SECOND, 1), multicast(60, "d", 1, 1, &["g1"])];
        lines.push(deliver(70, ("b", 1), 2, ("d", 1), 65, 2));
        lines.extend([recover(55, ("a", 2), from), begun(55, ("a", 2), SECOND, 1)]);
        lines.push(deliver(70, ("a", 2), number, ("d", 1), 65, 2));
        lines
    };
    let report = judge(&[first.clone(), goes_on(1, 2)]);
    assert_eq!(violated(&report), Vec::<&str>::new(), "{report:#?}");
    assert_eq!(report.properties["M11"].as_str(), "ok");
    let report = judge(&[first.clone(), goes_on(2, 3)]);
    assert!(violated(&report).contains(&"M11") || violated(&report).contains(&"M5"), "{report:#?}");
    // `a` is admitted again without the delivery that the history keeps.
    let report = judge(&[first, goes_on(0, 1)]);
    assert!(violated(&report).contains(&"M5"), "{report:#?}");
}
