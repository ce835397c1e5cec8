//! The reader: every kind of bad line has its own error with its location, and everything that is written is read back.

use proptest::prelude::*;
use stentor_checker::history::check_inputs;
use stentor_checker::{
    Ballot, Begun, Broadcast, Cluster, Deliver, Encoder, Event, EventKind, Group, GroupSet, HistoryWriter, Incarnation,
    Label, MessageId, Multicast, Process, Reader, Timestamp,
};

const FIRST: &str = r#"{"e":"cluster","groups":{"g1":["a","b"]},"clients":["c"]}"#;
const MULTICAST: &str =
    r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g1"],"len":0,"hash":"00000000000000ff"}"#;

fn error_of(text: &str) -> String {
    match check_inputs([("h.jsonl".to_owned(), text.as_bytes())], false) {
        Ok(report) => panic!("read without an error: {report:#?}"),
        Err(error) => error.to_string(),
    }
}

/// Returns the error of a second line after a valid first one.
fn error_of_line(line: &str) -> String {
    error_of(&format!("{FIRST}\n{line}\n"))
}

#[test]
fn the_first_line_must_be_a_possible_cluster() {
    let cases = [
        ("", "h.jsonl:1: the history is empty: its first line must be the cluster line"),
        ("\n \n", "h.jsonl:3: the history is empty: its first line must be the cluster line"),
        (MULTICAST, "h.jsonl:1: the first line is not a cluster: begin with {\"e\":\"cluster\",\"groups\":{…}}"),
        ("nonsense", "h.jsonl:1: not an event: expected ident (column 2)"),
        (r#"{"e":"cluster"}"#, "h.jsonl:1: `cluster` without `groups`"),
        (
            r#"{"e":"cluster","version":2,"groups":{"g":["a"]}}"#,
            "h.jsonl:1: version 2 of the schema: this program reads version 1",
        ),
        (
            r#"{"e":"cluster","clock":"sun","groups":{"g":["a"]}}"#,
            "h.jsonl:1: unknown clock `sun`: write \"global\" if all times come from one clock, \"host:\" and up to 128 bytes of a name for the clock of a host, or leave it out",
        ),
        (
            r#"{"e":"cluster","groups":{"g":[]}}"#,
            "h.jsonl:1: group `g` has no processes: list at least one, or leave the group out",
        ),
        (
            r#"{"e":"cluster","groups":{"g":["a"],"g":["b"]}}"#,
            "h.jsonl:1: group `g` is listed twice: give each group one list",
        ),
    ];
    for (text, error) in cases {
        assert_eq!(error_of(text), error);
    }
}

#[test]
fn every_bad_event_is_an_error_that_names_line_and_reason() {
    let cases = [
        (r#"{"t":1,"p":"c","i":1,"e":"explode"}"#, "unknown event `explode`: the schema of version 1 does not have it"),
        (r#"{"t":1,"p":"c","i":1}"#, "`event` without `e`"),
        (r#"{"p":"c","i":1,"e":"crash"}"#, "`crash` without `t`"),
        (r#"{"t":1,"i":1,"e":"crash"}"#, "`crash` without `p`"),
        (r#"{"t":1,"p":"a","e":"crash"}"#, "`crash` without `i`"),
        (r#"{"t":1,"p":"a","i":0,"e":"crash"}"#, "`i` is 0: incarnations count from 1"),
        (r#"{"t":1,"p":"z","i":1,"e":"crash"}"#, "process `z` is not in the cluster line"),
        (r#"{"t":1,"p":"a","i":1,"e":"recover"}"#, "`recover` without `from`"),
        (r#"{"t":1,"p":"a","i":1,"e":"memory","bytes":1}"#, "`memory` without `limit`"),
        (r#"{"t":-1,"p":"a","i":1,"e":"crash"}"#, "not an event: invalid value: integer `-1`, expected u64 (column 7)"),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g9"],"len":0,"hash":"00000000000000ff"}"#,
            "group `g9` is not in the cluster line",
        ),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":[],"len":0,"hash":"00000000000000ff"}"#,
            "`to` is empty: a message has at least one destination",
        ),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":"g1","len":0,"hash":"00000000000000ff"}"#,
            "`to` is a list of groups here",
        ),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g1"],"len":4294967296,"hash":"00000000000000ff"}"#,
            "`len` is above 2^32 - 1",
        ),
        (r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g1"],"len":0}"#, "`multicast` without `hash`"),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g1"],"len":0,"hash":"+ff"}"#,
            "not an event: invalid value: string \"+ff\", expected 16 hex digits (column 81)",
        ),
        (r#"{"t":1,"p":"a","i":1,"e":"remote_op","m":["c",1],"kind":"write","to":["b"]}"#, "`to` is one process here"),
        (r#"{"t":1,"p":"a","i":1,"e":"epoch","g":"g1","leader":"a"}"#, "`epoch` without `ballot`"),
        (
            r#"{"t":1,"p":"a","i":1,"e":"epoch","g":"g1","ballot":[1,"z"],"leader":"a"}"#,
            "process `z` is not in the cluster line",
        ),
        (r#"{"t":1,"p":"a","i":1,"e":"carry","g":"g1","ballot":[1,"a"]}"#, "`carry` without `m`"),
        (r#"{"t":1,"p":"a","i":1,"e":"carry","m":["c",1],"ballot":[1,"a"]}"#, "`carry` without `g`"),
        (
            r#"{"t":1,"p":"a","i":1,"e":"multicast","m":["c",1],"to":["g1"],"len":0,"hash":"00000000000000ff"}"#,
            "`multicast` of a message of `c`, recorded by `a`: only its sender records it",
        ),
        (
            r#"{"t":1,"p":"b","i":1,"e":"synced","m":["c",1],"to":["g1"],"len":0,"hash":"00000000000000ff"}"#,
            "`synced` of a message of `c`, recorded by `b`: only its sender records it",
        ),
        (
            r#"{"t":1,"p":"a","i":1,"e":"broadcast","s":"b","k":0,"len":0,"hash":"00000000000000ff"}"#,
            "`broadcast` of a message of `b`, recorded by `a`: only its sender records it",
        ),
        (
            r#"{"t":1,"p":"c","i":1,"e":"multicast","m":["c","+1"],"to":["g1"],"len":0,"hash":"00000000000000ff"}"#,
            "not an event: invalid value: string \"+1\", expected a whole number below 2^64, or a string of its digits (column 50)",
        ),
        (FIRST, "a second cluster line: give files of several runs or processes one by one"),
    ];
    for (line, reason) in cases {
        assert_eq!(error_of_line(line), format!("h.jsonl:2: {reason}"));
    }
}

#[test]
fn a_life_is_in_one_file_but_for_its_crash() {
    let cluster = r#"{"e":"cluster","version":1,"groups":{"g":["a","b"]}}"#;
    let file = |events: &[&str]| [&[cluster], events].concat().join("\n") + "\n";
    let lives = |i: u64| file(&[&format!(r#"{{"t":1,"p":"a","i":{i},"e":"memory","bytes":1,"limit":2}}"#)]);
    let crash =
        file(&[r#"{"t":2,"p":"a","i":7,"e":"crash"}"#, r#"{"t":3,"p":"b","i":7,"e":"memory","bytes":1,"limit":2}"#]);
    let check = |second: &str| {
        let inputs = [("1.jsonl", lives(7)), ("2.jsonl", crash.clone()), ("3.jsonl", second.to_owned())];
        let inputs: Vec<_> = inputs.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes())).collect();
        check_inputs(inputs, false).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(check(&lives(u64::MAX)), Ok(()));
    let twice = "3.jsonl:2: `a` is in incarnation 7 here and in `1.jsonl`: each life needs its own, larger `i`; leave out files that are copies";
    assert_eq!(check(&lives(7)), Err(twice.to_owned()));
}

#[test]
fn time_and_incarnations_never_decrease_and_crashed_lives_do_not_act() {
    let at = |t: u32, i: u32, e: &str| format!(r#"{{"t":{t},"p":"a","i":{i},"e":"{e}","from":0}}"#);
    let error = error_of_line(&format!("{}\n{}", at(5, 1, "recover"), at(4, 1, "crash")));
    assert_eq!(error, "h.jsonl:3: time goes back at `a`: 4 after 5");
    let error = error_of_line(&format!("{}\n{}", at(5, 2, "recover"), at(5, 1, "crash")));
    assert_eq!(error, "h.jsonl:3: incarnation goes back at `a`: 1 after 2");
    let error = error_of_line(&format!("{}\n{}", at(5, 2, "crash"), at(5, 2, "recover")));
    assert_eq!(error, "h.jsonl:3: `a` acts in incarnation 2, in which it crashed: raise `i` at each start");
}

#[test]
fn a_line_that_is_cut_off_is_an_error_unless_tolerated() {
    let cut = format!("{FIRST}\n{MULTICAST}\n{}", &MULTICAST[..40]);
    let (mut reader, mut cluster) = Reader::open("h.jsonl", cut.as_bytes()).unwrap();
    assert!(reader.next_event(&mut cluster).unwrap().is_some());
    let error = reader.next_event(&mut cluster).unwrap_err().to_string();
    assert!(error.starts_with("h.jsonl:3: the last line is cut off"), "{error}");
    // A file is checked without its cut-off line, and the report names the file.
    let report = check_inputs([("h.jsonl".to_owned(), cut.as_bytes())], false).unwrap();
    assert_eq!((report.cut_off, report.counts.messages), (vec!["h.jsonl".to_owned()], 1));
    let (reader, mut cluster) = Reader::open("h.jsonl", cut.as_bytes()).unwrap();
    let mut reader = reader.tolerate_cut_off_line();
    assert!(reader.next_event(&mut cluster).unwrap().is_some());
    assert!(reader.next_event(&mut cluster).unwrap().is_none());
    assert!(reader.was_cut_off());
    // A complete last line without its line feed is valid.
    let (mut reader, mut cluster) =
        Reader::open("h.jsonl", &cut.as_bytes()[..FIRST.len() + 1 + MULTICAST.len()]).unwrap();
    assert!(reader.next_event(&mut cluster).unwrap().is_some());
}

#[test]
fn unknown_fields_are_ignored_and_connections_may_be_numbers() {
    let text = format!(
        "{FIRST}\n{}\n{}\n{}\n",
        r#"{"t":1,"p":"c","i":1,"e":"crash","why":{"deep":[1,2]}}"#,
        r#"{"t":1,"p":"a","i":1,"e":"send","c":1,"k":0,"len":3,"hash":"00000000000000ff"}"#,
        r#"{"t":1,"p":"a","i":1,"e":"sent","c":1,"k":0}"#,
    );
    let report = check_inputs([("h".to_owned(), text.as_bytes())], false).unwrap();
    assert_eq!((report.counts.events, report.counts.sends), (3, 1));
}

#[test]
fn an_endless_line_is_refused_before_it_fills_the_memory() {
    let error = match Reader::open("zeros", std::io::BufReader::new(std::io::repeat(b'0'))) {
        Ok(_) => panic!("read an endless line"),
        Err(error) => error.to_string(),
    };
    assert_eq!(error, "zeros:1: the line is longer than 16777216 bytes: this is not a history");
}

#[test]
fn files_of_one_run_are_checked_together_and_others_refused() {
    let deliver =
        r#"{"t":2,"p":"a","i":1,"e":"deliver","m":["c",1],"g":"g1","n":1,"ts":[1,"g1"],"hash":"00000000000000ff"}"#;
    let one = format!("{FIRST}\n{deliver}\n");
    let two = format!("{FIRST}\n{MULTICAST}\n");
    let inputs = |other: &str| [("one".to_owned(), one.clone()), ("two".to_owned(), other.to_owned())];
    let check = |inputs: [(String, String); 2]| {
        let open: Vec<_> = inputs.iter().map(|(name, text)| (name.clone(), text.as_bytes())).collect();
        check_inputs(open, true)
    };
    let report = check(inputs(&two)).unwrap();
    assert_eq!(report.violated().collect::<Vec<_>>(), ["M2", "M3", "M9"]);
    assert!(report.counter_example.unwrap().contains("two:2  {\"t\":1,"));
    let error = check(inputs(&two.replace("\"b\"", "\"d\""))).unwrap_err().to_string();
    assert_eq!(error, "two:1: `groups` of the cluster differs from that in one: check files of one run together");
}

#[test]
fn times_of_two_hosts_are_not_compared() {
    let on = |host: &str, event: &str| {
        format!(
            "{{\"e\":\"cluster\",\"groups\":{{\"g\":[\"a\"]}},\"clients\":[\"c\"],\"clock\":\"{host}\"}}\n{event}\n"
        )
    };
    let deliver =
        r#"{"t":1,"p":"a","i":1,"e":"deliver","m":["c",1],"g":"g","n":1,"ts":[1,"g"],"hash":"00000000000000ff"}"#;
    let multicast = r#"{"t":2,"p":"c","i":1,"e":"multicast","m":["c",1],"to":["g"],"len":1,"hash":"00000000000000ff"}"#;
    let crash = r#"{"t":3,"p":"a","i":1,"e":"crash"}"#;
    let violated = |clocks: [&str; 3]| {
        let files = [on(clocks[0], deliver), on(clocks[1], multicast), on(clocks[2], crash)];
        let open: Vec<_> = files.iter().map(|text| ("h".to_owned(), text.as_bytes())).collect();
        let report = check_inputs(open, false).map_err(|error| error.to_string())?;
        Ok::<_, String>(report.violated().collect::<Vec<_>>().join(" "))
    };
    let (one, other, early) = ("host:one 1", "host:other 1", Ok("M1".to_owned()));
    assert_eq!(violated([one; 3]), early, "the delivery is before its multicast");
    assert_eq!(violated(["global"; 3]), early);
    for clocks in [[one, other, one], [one, one, other], [other, one, one]] {
        assert_eq!(violated(clocks), Ok(String::new()), "{clocks:?}");
    }
    let differs = "h:1: `clock` of the cluster differs from that in h: check files of one run together".to_owned();
    assert_eq!(violated([one, one, "global"]), Err(differs));
    for bad in ["host:", &format!("host:{}", "x".repeat(129))] {
        assert!(violated([bad; 3]).unwrap_err().contains("up to 128 bytes of a name"), "{bad}");
    }
}

fn cluster() -> Cluster {
    let mut cluster =
        Cluster::builder().group("g\"1", ["a", "b"]).group("g2", ["ü"]).clients(["c"]).window(8).build().unwrap();
    cluster.label("write");
    cluster
}

fn message() -> impl Strategy<Value = MessageId> {
    (0..4_u32, any::<u64>()).prop_map(|(client, sequence)| MessageId { client: Process(client), sequence })
}

fn multicast() -> impl Strategy<Value = Multicast> {
    let to = (1..4_u8).prop_map(|bits| (0..2).filter(|g| bits >> g & 1 == 1).map(Group).collect::<GroupSet>());
    (message(), to, any::<u32>(), any::<u64>()).prop_map(|(m, to, len, hash)| Multicast { m, to, len, hash })
}

fn stream() -> impl Strategy<Value = Broadcast> {
    ((0..4_u32).prop_map(Process), any::<u64>(), any::<u32>(), any::<u64>())
        .prop_map(|(sender, index, len, hash)| Broadcast { sender, index, len, hash })
}

fn kind() -> impl Strategy<Value = EventKind> {
    let group = || (0..2_u16).prop_map(Group);
    let process = || (0..4_u32).prop_map(Process);
    let ts = (any::<u64>(), group()).prop_map(|(time, group)| Timestamp { time, group });
    let ballot = || (any::<u64>(), process()).prop_map(|(number, by)| Ballot { number, by });
    let some = proptest::option::of(ballot());
    let deliver = (message(), group(), any::<u64>(), ts, any::<u64>(), any::<Option<u32>>(), some)
        .prop_map(|(m, group, number, ts, hash, len, ballot)| Deliver { m, group, number, ts, hash, len, ballot });
    let epoch = (group(), ballot(), process(), any::<Option<u32>>()).prop_map(|(group, ballot, leader, carried)| {
        EventKind::Epoch { group, ballot: ballot.number, by: ballot.by, leader, carried }
    });
    let incarnation = || (any::<u32>(), any::<u32>()).prop_map(|(number, tag)| Incarnation { number, tag });
    let after = proptest::option::of(incarnation());
    let begun = (group(), incarnation(), any::<u64>(), after)
        .prop_map(|(group, incarnation, kept, after)| EventKind::Begun(Begun { group, incarnation, kept, after }));
    let heard = any::<u64>().prop_map(|time| EventKind::Heard { time });
    let carry = (message(), group(), ballot()).prop_map(|(m, group, ballot)| EventKind::Carry { m, group, ballot });
    prop_oneof![
        multicast().prop_map(EventKind::Multicast),
        multicast().prop_map(EventKind::Synced),
        deliver.prop_map(EventKind::Deliver),
        any::<u64>().prop_map(|from| EventKind::Recover { from }),
        epoch,
        begun,
        heard,
        carry,
        stream().prop_map(EventKind::Broadcast),
        stream().prop_map(EventKind::Bdeliver),
        (stream(), any::<u64>(), any::<bool>()).prop_map(|(stream, other, proven)| {
            let Broadcast { sender, index, hash, .. } = stream;
            EventKind::Equivocation { sender, index, hash, other, proven }
        }),
        (process(), any::<u32>(), any::<u32>()).prop_map(|(sender, from, more)| {
            let from = u64::from(from);
            EventKind::Skip { sender, from, to: from + u64::from(more) }
        }),
        (message(), process()).prop_map(|(m, to)| EventKind::RemoteOp { m, kind: Label(0), to }),
        (any::<u64>(), any::<u64>()).prop_map(|(b, l)| EventKind::Memory { bytes: b, limit: Some(l), what: Label(0) }),
    ]
}

/// Returns the process that records an event. Multicasts and broadcasts are recorded by their senders.
fn by(process: u32, kind: &EventKind) -> Process {
    match kind {
        EventKind::Multicast(multicast) | EventKind::Synced(multicast) => multicast.m.client,
        EventKind::Broadcast(broadcast) => broadcast.sender,
        _ => Process(process),
    }
}

proptest! {
    #[test]
    fn written_events_are_read_back(kinds in proptest::collection::vec((0..4_u32, kind()), 0..40)) {
        let events: Vec<Event> = kinds.into_iter().enumerate()
            .map(|(t, (process, kind))| Event { t: t as u64, process: by(process, &kind), incarnation: 1, kind })
            .collect();
        let mut text = Vec::new();
        let mut writer = HistoryWriter::new(&mut text, &cluster()).unwrap();
        events.iter().for_each(|event| writer.event(event).unwrap());
        writer.complete().unwrap();
        drop(writer);
        let (mut reader, mut read_cluster) = Reader::open("h", &text[..]).unwrap();
        prop_assert_eq!(read_cluster.difference(&cluster()), None);
        let mut read = Vec::new();
        while let Some(event) = reader.next_event(&mut read_cluster).unwrap() {
            read.push(event);
        }
        prop_assert_eq!(read, events);
        prop_assert!(reader.is_complete());
    }

    #[test]
    fn no_garbage_makes_the_reader_panic(text in "\\PC{0,200}", cut in 0..200_usize) {
        let good = format!("{FIRST}\n{MULTICAST}\n");
        let cut = (0..=cut.min(good.len())).rev().find(|at| good.is_char_boundary(*at)).unwrap_or(0);
        let _ = check_inputs([("h".to_owned(), text.as_bytes())], true);
        let _ = check_inputs([("h".to_owned(), format!("{}{text}", &good[..cut]).as_bytes())], true);
    }
}

#[test]
fn encoding_into_a_warm_buffer_does_not_grow_it() {
    let cluster = cluster();
    let encoder = Encoder::new(&cluster);
    let m = MessageId { client: Process(3), sequence: u64::MAX };
    let ts = Timestamp { time: u64::MAX, group: Group(0) };
    let deliver =
        Deliver { m, group: Group(0), number: u64::MAX, ts, hash: u64::MAX, len: Some(u32::MAX), ballot: None };
    let event = Event { t: u64::MAX, process: Process(2), incarnation: u64::MAX, kind: EventKind::Deliver(deliver) };
    let mut out = Vec::new();
    encoder.encode(&event, &mut out);
    let (place, capacity) = (out.as_ptr(), out.capacity());
    for _ in 0..100 {
        out.clear();
        encoder.encode(&event, &mut out);
    }
    assert_eq!((out.as_ptr(), out.capacity()), (place, capacity));
}

#[test]
fn written_channel_events_are_read_back() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ok_channel.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut reader, mut cluster) = Reader::open("h.jsonl", text.as_bytes()).unwrap();
    let mut events = Vec::new();
    while let Some(event) = reader.next_event(&mut cluster).unwrap() {
        events.push(event);
    }
    let encoder = stentor_checker::Encoder::new(&cluster);
    let mut out = Vec::new();
    events.iter().for_each(|event| encoder.encode(event, &mut out));
    let lines = |text: &str| text.lines().filter(|line| line.contains("\"t\":")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&String::from_utf8(out).unwrap()), lines(&text));
}
