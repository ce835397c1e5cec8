//! The broadcast of a program: messages are delivered everywhere, liars are proven, and no process hangs.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor::broadcast::Equivocation;
use stentor::config::ClusterConfig;
use stentor::runtime::{BindConfig, ClusterFabric, ClusterRuntime, Role, ShmFabric};
use stentor::{Broadcast, BroadcastErrorKind, Cluster, Heard, NotSent, Turn, WaitMode};
use stentor_fabric::ProcessId;
use stentor_neb::{Authority, Liar, Lies};
use stentor_testutil::{SplitMix64, TempDir};

/// Time limit; reached only if a test hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SIGNED: &str = "mode = \"quorum\"\nfault_model = \"lying-hosts\"\nfaults = 1\n";
const SENDER: &str = "mode = \"quorum\"\nfault_model = \"lying-sender\"\nfaults = 1\nwindow = 8\npayload_bytes = 100\n";

fn text(neb: &str) -> String {
    let member = |(n, name)| format!("{{ id = \"{name}\", address = \"127.0.0.{n}:7101\" }}, ");
    let members: String = (1..).zip(NAMES).map(member).collect();
    format!("cluster = \"front\"\nfabric = \"shm\"\n{neb}\n[[group]]\nid = \"g1\"\nprocess = [ {members} ]\n")
}

fn secret(at: usize) -> [u8; 32] {
    [at as u8 + 1; 32]
}

/// Returns the section with keys.
fn signed() -> String {
    let hex = |key: [u8; 32]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = |(at, name)| format!("\"{name}\" = \"{}\"", hex(Authority::public_of(&secret(at))));
    let keys: Vec<String> = (0..).zip(NAMES).map(key).collect();
    format!("[neb]\n{SIGNED}keys = {{ {} }}", keys.join(", "))
}

fn cluster(directory: &TempDir, neb: &str) -> Cluster {
    let file = directory.join("cluster.toml");
    std::fs::write(&file, text(neb)).unwrap();
    Cluster::load(file).expect("a valid cluster").in_directory(directory.join("sockets"))
}

/// The delivered messages, and other events in words.
type Log = Vec<(String, u64, Vec<u8>)>;

fn note(log: &mut Log, heard: Heard<'_>) {
    match heard {
        Heard::Message { sender, sequence, bytes } => log.push((sender.to_owned(), sequence, bytes.to_vec())),
        other => log.push((format!("{other:?}"), u64::MAX, Vec::new())),
    }
}

/// The processes of this thread, with the messages that each has delivered.
struct All {
    processes: Vec<Broadcast>,
    logs: Vec<Log>,
}

impl All {
    fn start(cluster: &Cluster, names: &[&str]) -> All {
        let start = |name: &&str| cluster.broadcast(name).wait(WaitMode::BLOCK).start().expect("the process starts");
        All { processes: names.iter().map(start).collect(), logs: vec![Vec::new(); names.len()] }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut All) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            for (process, log) in self.processes.iter_mut().zip(&mut self.logs) {
                let _ = process.turn(|heard| note(log, heard)).expect("the process still runs");
            }
            assert!(since.elapsed() < PATIENCE, "never: {what}");
        }
    }

    fn begin(&mut self) {
        self.until("all have begun", |all| all.processes.iter_mut().all(Broadcast::has_begun));
    }
}

#[test]
fn messages_are_delivered_everywhere_in_sender_order() {
    let directory = TempDir::new();
    let cluster = cluster(&directory, &format!("[neb]\n{SENDER}"));
    let mut all = All::start(&cluster, &NAMES);
    assert_eq!(all.processes[0].send(b"early"), Err(NotSent::NotBegun));
    assert_eq!(all.processes[1].name(), "b");
    all.begin();
    assert!(all.processes.iter().all(|process| process.absent().is_empty()));
    let mut sent = [0; 4];
    all.until("everything is heard", |all| {
        for (at, process) in all.processes.iter_mut().enumerate() {
            if sent[at] == 50 {
                continue;
            }
            match process.send(format!("{at} says {}", sent[at]).as_bytes()) {
                Ok(sequence) => {
                    assert_eq!(sequence, sent[at]);
                    sent[at] += 1;
                }
                Err(NotSent::Full) => {}
                Err(why) => panic!("{why}"),
            }
        }
        all.logs.iter().all(|log| log.len() >= 200)
    });
    for log in &all.logs {
        for (at, name) in NAMES.iter().enumerate() {
            let of: Vec<_> = log.iter().filter(|(sender, ..)| sender == name).collect();
            assert_eq!(of.len(), 50);
            for (sequence, (_, heard, bytes)) in (0..).zip(of) {
                assert_eq!((*heard, &bytes[..]), (sequence, format!("{at} says {sequence}").as_bytes()));
            }
        }
    }
}

#[test]
fn refused_messages_use_no_sequence() {
    let directory = TempDir::new();
    let cluster = cluster(&directory, &format!("[neb]\n{SENDER}"));
    let mut all = All::start(&cluster, &NAMES);
    all.begin();
    let first = &mut all.processes[0];
    let refused = (0..100).find_map(|_| first.send(b"x").err());
    assert_eq!(refused, Some(NotSent::Full));
    assert_eq!(first.send(&[0; 101]), Err(NotSent::TooLong { bytes: 101, limit: 100 }));
    assert_eq!(
        NotSent::TooLong { bytes: 101, limit: 100 }.to_string(),
        "a message of 101 bytes is longer than the limit of 100 bytes; send it in parts, or raise `payload_bytes` in [neb]"
    );
    all.until("the window is heard", |all| all.logs.iter().all(|log| log.len() == 8));
    all.until("there is room", |all| all.processes[0].send(b"y") == Ok(8));
}

#[test]
fn descriptor_is_readable_when_a_message_arrives() {
    let directory = TempDir::new();
    let cluster = cluster(&directory, &format!("[neb]\n{SENDER}"));
    let mut all = All::start(&cluster, &NAMES);
    all.begin();
    let readable = |process: &Broadcast, longest: i64| {
        let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: longest };
        let mut of = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut of, Some(&time)).unwrap() == 1
    };
    let (mut slept, mut woken) = (0, 0);
    for sequence in 0..20 {
        all.until("it sleeps", |all| {
            let idle = all.processes[1].turn(|_| ()).unwrap();
            matches!(idle, Turn::Idle(_))
        });
        let (sleeps, before) = (!readable(&all.processes[1], 0), all.logs[1].len());
        let since = Instant::now();
        // Only the other processes are turned.
        while all.processes[0].send(b"wake up") != Ok(sequence) {
            for other in [0, 2, 3] {
                let _ = all.processes[other].turn(|_| ()).unwrap();
            }
            assert!(since.elapsed() < PATIENCE);
        }
        slept += u32::from(sleeps);
        woken += u32::from(sleeps && readable(&all.processes[1], 0));
        assert!(readable(&all.processes[1], 900_000_000));
        all.until("it is heard", |all| all.logs[1].len() > before);
    }
    assert!(slept > 5 && woken > slept / 2, "of {slept} messages {woken} woke the process at once");
    // No more messages arrive, but the next turn becomes due.
    all.until("it sleeps", |all| matches!(all.processes[1].turn(|_| ()).unwrap(), Turn::Idle(_)));
    assert!(readable(&all.processes[1], 900_000_000));
    assert!(all.processes[1].turn_or_sleep(Duration::from_millis(1), |_| ()).unwrap());
}

#[test]
fn invalid_settings_are_refused_with_a_remedy() {
    let directory = TempDir::new();
    let (plain, keyed) = (format!("[neb]\n{SENDER}"), signed());
    let (no_key, bad) = (directory.join("none.key"), directory.join("bad.key"));
    std::fs::write(&bad, "0123").unwrap();
    type Change<'a> = &'a dyn Fn(stentor::BroadcastBuilder) -> stentor::BroadcastBuilder;
    let cases: [(&str, &str, Change<'_>, &str); 8] = [
        ("", "a", &|end| end, "the configuration has no [neb]; add one"),
        (&plain, "z", &|end| end, "it is not a process of the broadcast; name one of a, b, c, d"),
        (&plain, "a", &|end| end.secret([1; 32]), "a secret key was given, and [neb] has no `keys`"),
        (&keyed, "a", &|end| end, "[neb] has `keys`, and no secret key was given"),
        (&keyed, "a", &|end| end.secret([9; 32]), "the secret key is not the one of process 0"),
        (&keyed, "a", &|end| end.secret_file(&no_key), "cannot read the secret key"),
        (&keyed, "a", &|end| end.secret_file(&bad), "holds no secret key; name a file with 64"),
        (&keyed, "b", &|end| end.secret(secret(0)), "the secret key is not the one of process 1"),
    ];
    for (neb, name, change, expected) in cases {
        let error = change(cluster(&directory, neb).broadcast(name)).start().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().starts_with(&format!("broadcast process {name}: ")), "{error}");
        assert!(error.to_string().ends_with(&error.remedy()));
        assert_eq!(error.kind(), BroadcastErrorKind::Configuration);
        assert!(!error.to_string().contains("0123"), "{error}");
    }
    let good = directory.join("good.key");
    std::fs::write(&good, format!("{}\n", "02".repeat(32))).unwrap();
    let cluster = cluster(&directory, &keyed);
    let kept = cluster.broadcast("b").secret_file(&good).start().expect("the process starts");
    let twice = cluster.broadcast("b").secret(secret(1)).start().unwrap_err();
    assert_eq!(twice.kind(), BroadcastErrorKind::NotStarted, "{twice}");
    assert!(!format!("{:?}", cluster.broadcast("b").secret([0xab; 32])).contains("171"));
    drop(kept);
}

/// One of four processes dies, and the others continue. A restart of the dead process is refused with an error.
#[test]
fn ended_process_is_skipped_and_its_restart_is_refused() {
    let directory = TempDir::new();
    let cluster = cluster(&directory, &format!("[neb]\n{SENDER}patience_ms = 200\n"));
    let mut all = All::start(&cluster, &NAMES);
    all.begin();
    all.until("it is sent", |all| all.processes[3].send(b"last words") == Ok(0));
    all.until("it is heard", |all| all.logs.iter().all(|log| log.len() == 1));
    drop(all.processes.pop());
    all.logs.pop();
    let mut sent = 0;
    // 30 messages are more than a window: a sender waits for a dead process for `patience_ms` at most.
    all.until("the others go on", |all| {
        sent += u64::from(sent < 30 && all.processes[0].send(b"on").is_ok());
        all.logs.iter().all(|log| log.len() == 31)
    });
    assert_eq!(all.processes[0].absent(), ["d"]);
    let mut again = cluster.broadcast("d").start().expect("its place is free");
    let since = Instant::now();
    let error = loop {
        let (mut log, mut ended) = (Log::new(), None);
        match again.turn(|heard| note(&mut log, heard)) {
            Ok(_) => {}
            Err(error) => ended = Some(error),
        }
        assert!(log.is_empty() && since.elapsed() < PATIENCE, "{log:?}");
        for process in &mut all.processes {
            let _ = process.turn(|_| ()).unwrap();
        }
        if let Some(error) = ended {
            break error;
        }
    };
    assert_eq!(error.kind(), BroadcastErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("cannot take part again before the whole broadcast starts anew"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(10));
}

/// A liar sends different values to different processes. No two correct processes deliver different values, and the
/// liar is proven.
#[test]
fn liar_is_proven_and_no_two_processes_differ() {
    let directory = TempDir::new();
    let cluster = cluster(&directory, &signed());
    let plan = ClusterRuntime::new(ClusterConfig::parse(Path::new("cluster.toml"), &text(&signed())).unwrap()).unwrap();
    let neb = plan.config().neb().expect("the configuration has a broadcast");
    let bind = BindConfig { sockets: directory.join("sockets"), ..BindConfig::default() };
    let fabric = ShmFabric::start_in(&plan, Role::Broadcast(neb), ProcessId(3), &bind).unwrap();
    let authority = neb.authority(plan.config().salt(), ProcessId(3), &secret(3)).unwrap();
    let lies = Lies::default().with("two-values").expect("a lie");
    let (salt, victims) = (plan.config().salt(), [ProcessId(1), ProcessId(2)].into_iter().collect());
    let liar = Liar::new(fabric, *neb.config(), salt, Some(authority), lies, 30, victims).unwrap();
    let (mut liar, mut random) = (liar.equivocating_every(5), SplitMix64(3));
    let start = |at: usize| cluster.broadcast(NAMES[at]).secret(secret(at)).wait(WaitMode::BLOCK).start().unwrap();
    let (mut honest, mut logs) = ([0, 1, 2].map(start), [const { Log::new() }; 3]);
    let mut caught = Vec::new();
    let check = |of: Equivocation<'_>| {
        assert_eq!((of.sender(), of.is_proven()), ("d", true));
        assert!(of.witness() != "d");
        let [ours, other] = of.messages();
        assert!(ours != other && !ours.is_empty() && !other.is_empty(), "{of:?}");
        assert_eq!(of.evidence().index, of.sequence());
        of.sequence()
    };
    let since = Instant::now();
    while caught.is_empty() || since.elapsed() < Duration::from_millis(500) {
        liar.step(|| random.word(), &mut |_| {});
        for (process, log) in honest.iter_mut().zip(&mut logs) {
            let _ = process
                .turn(|heard| match heard {
                    Heard::Equivocation(of) => caught.push(check(of)),
                    heard => note(log, heard),
                })
                .unwrap();
        }
        assert!(since.elapsed() < PATIENCE, "nobody noticed: {} lies", liar.equivocated());
    }
    let heard = logs.each_ref().map(|log| log.iter().filter(|(sender, ..)| sender == "d").collect::<Vec<_>>());
    for (at, log) in heard.iter().enumerate() {
        for other in &heard[at + 1..] {
            let both = log.len().min(other.len());
            assert_eq!(log[..both], other[..both], "two correct processes delivered different messages");
        }
    }
    assert!(liar.equivocated() > 0 && caught.iter().all(|sequence| *sequence < 30));
}
