//! `--pcap` of commands that start several processes: a file for each process, with the packets that it sent and
//! received.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::support::{Scratch, run};

/// Returns source and destination of each packet of a capture. The capture must end with a complete packet, even if its
/// process was killed.
fn packets(file: &Path) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let bytes = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes(), "{}", file.display());
    let (mut all, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let packet = &bytes[at + 16..at + 16 + length];
        let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
        assert_eq!((packet[0], &packet[22..24]), (0x45, &4791_u16.to_be_bytes()[..]), "{}", file.display());
        all.push((address(12), address(16)));
        at += 16 + length;
    }
    all
}

/// Returns the captures `run-NAME.pcap` by name.
fn captures(scratch: &Scratch) -> BTreeMap<String, Vec<(Ipv4Addr, Ipv4Addr)>> {
    let folder = scratch.path("x");
    let files = fs::read_dir(folder.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let name = |file: &Path| Some(file.file_name()?.to_str()?.strip_prefix("run-")?.strip_suffix(".pcap")?.to_owned());
    files.filter_map(|file| Some((name(&file)?, packets(&file)))).collect()
}

/// Checks that each process has sent and received packets, and that the captures of the senders contain all received
/// packets.
fn fit_together(all: &BTreeMap<String, Vec<(Ipv4Addr, Ipv4Addr)>>) {
    let mut owners = BTreeMap::new();
    for (name, packets) in all {
        let ends: Vec<BTreeSet<_>> = packets.iter().map(|(from, to)| BTreeSet::from([*from, *to])).collect();
        let common = ends.iter().skip(1).fold(ends[0].clone(), |all, both| &all & both);
        // A process with one peer has two candidate addresses, of which the smaller one is taken. Two processes with
        // the same candidate are not compared.
        owners.insert(name, common);
        let sources: BTreeSet<_> = packets.iter().map(|(from, _)| from).collect();
        assert!(sources.len() >= 2, "{name}: {sources:?}");
    }
    for (name, packets) in all {
        let own = &owners[name];
        assert!(!own.is_empty(), "{name} has packets of two other processes");
        for peer in owners.keys().filter(|peer| **peer != name) {
            let (Some(mine), Some(theirs)) = (own.first(), owners[*peer].first()) else { continue };
            let count = |packets: &[_]| packets.iter().filter(|ends| **ends == (*theirs, *mine)).count();
            let (came, went) = (count(packets), count(&all[*peer]));
            assert!(mine == theirs || came <= went, "{went} went from {peer} to {name}, {came} came");
        }
    }
}

#[test]
fn demonstration_has_a_capture_for_each_process_and_life() {
    let scratch = Scratch::new();
    let (file, keep) = (scratch.path("run.pcap"), scratch.path("histories"));
    let args = ["demo", "--fabric", "roce", "--groups", "1", "--messages-limit", "300", "--json", "--pcap"];
    let ran = run(args.into_iter().chain([file.to_str().unwrap(), "--keep", keep.to_str().unwrap()]));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let killed = ran.document("demo")["killed"].as_str().unwrap().to_owned();
    let all = captures(&scratch);
    let expected = BTreeSet::from(["c0", "g1.1", "g1.2", "g1.3", &format!("{killed}.2")].map(str::to_owned));
    assert_eq!(all.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(!file.exists(), "the file without a process name is not used");
    assert!(all["c0"].len() > 300, "the client's capture has every message");
    // The process that was killed had no time to write all packets.
    let whole = all.into_iter().filter(|(name, _)| !name.starts_with(&killed)).collect();
    fit_together(&whole);
}

#[test]
fn broadcast_has_a_capture_for_each_process() {
    let scratch = Scratch::new();
    let (file, keep) = (scratch.path("run.pcap"), scratch.path("histories"));
    let args = ["demo", "--neb", "--fabric", "roce", "--messages-limit", "100", "--json", "--pcap"];
    let ran = run(args.into_iter().chain([file.to_str().unwrap(), "--keep", keep.to_str().unwrap()]));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "five processes; one of them lies\n"), "{}", ran.stdout);
    let all = captures(&scratch);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["p0", "p1", "p2", "p3", "p4"]);
    fit_together(&all);
}

#[test]
fn every_bench_supports_captures_and_network_faults() {
    let short = ["-n", "100", "--rounds", "1"];
    let lossy = [&short[..], &["--drop-chance", "0.01"]].concat();
    let failover = ["--groups", "1", "--rounds", "1", "--rate", "100", "--sim-runs", "0", "--timeout-ms", "400"];
    let benches: [(&str, &[&str], &[&str]); 4] = [
        ("fabric", &short, &["p0", "p1"]),
        ("multicast", &[&lossy[..], &["--groups", "1", "--dest", "1"]].concat(), &["c0", "g1.1", "g1.2", "g1.3"]),
        ("neb", &lossy, &["p0", "p1", "p2"]),
        ("failover", &failover, &["c0", "c1", "g1.1", "g1.2", "g1.3"]),
    ];
    for (bench, more, names) in benches {
        let scratch = Scratch::new();
        let file = scratch.path("run.pcap");
        let args = ["bench", bench, "--fabric", "roce", "--json", "--pcap", file.to_str().unwrap()];
        let ran = run(args.into_iter().chain(more.iter().copied()));
        assert_eq!(ran.code, 0, "{bench}: {}", ran.stderr);
        let network = ran.document("bench")["environment"]["network"].clone();
        let is_lossy = more.contains(&"--drop-chance");
        let said = if is_lossy { "packets are captured, lost with chance 0.01" } else { "packets are captured" };
        assert!(network == said, "{bench}: {network}");
        let all = captures(&scratch);
        for name in names {
            assert!(all[*name].len() > 20, "{bench} {name}: {:?}", all[*name].len());
        }
        let again = all.keys().filter(|name| !names.contains(&name.as_str())).count();
        assert_eq!((all.len(), again), (names.len() + again, usize::from(bench == "failover")), "{:?}", all.keys());
    }
}

#[test]
fn bench_of_several_sizes_has_a_capture_for_each_start() {
    let scratch = Scratch::new();
    let file = scratch.path("run.pcap");
    let args = ["bench", "neb", "--fabric", "roce", "--signed", "-n", "100", "--rounds", "1", "--window", "1"];
    let ran = run(args.into_iter().chain(["--json", "--pcap", file.to_str().unwrap()]));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(captures(&scratch).keys().collect::<Vec<_>>(), ["p0", "p0.2", "p1", "p1.2", "p2", "p2.2"]);
}

#[test]
fn unsupported_capture_is_refused_before_the_start() {
    let scratch = Scratch::new();
    let there = scratch.file("old-g1.2.pcap", "somebody's");
    scratch.file("old-p1.2.pcap", "somebody's");
    let path = |name: &str| scratch.path(name).to_str().unwrap().to_owned();
    let commands: [&[&str]; 5] =
        [&["demo"], &["bench", "multicast"], &["bench", "failover"], &["demo", "--neb"], &["bench", "fabric"]];
    for command in commands {
        let refused = |fabric: &str, file: &str, parts: &[&str]| {
            // With `-q`, because on a busy machine a bench reports that it is running before it checks the captures.
            run(command.iter().copied().chain(["-q", "--fabric", fabric, "--pcap", file])).refused(parts);
        };
        refused("shm", &path("run.pcap"), &["on shared memory", "--fabric roce"]);
        refused(
            "roce",
            &path("no/such/run.pcap"),
            &["cannot write", "No such file or directory", "make its directory first"],
        );
        refused("roce", "/dev/full", &["cannot write to one pipe or device", "/dev/full"]);
        refused("roce", "..", &["needs a file name"]);
    }
    for command in &commands[..3] {
        let old = path("old.pcap");
        run(command.iter().copied().chain(["-q", "--fabric", "roce", "--pcap", &old]))
            .refused(&["the capture exists already", "old-g1.2.pcap"]);
    }
    run(["bench", "fabric", "--fabric", "roce", "--drop-chance", "0.1"]).refused(&["wait for a lost packet"]);
    // The file of the second start of a process exists.
    run(["-q", "bench", "neb", "--signed", "--fabric", "roce", "--pcap", &path("old.pcap")])
        .refused(&["old-p1.2.pcap"]);
    assert_eq!(fs::read_to_string(there).unwrap(), "somebody's");
    let left = fs::read_dir(scratch.path("x").parent().unwrap()).unwrap().count();
    assert_eq!(left, 2, "refused commands leave no files");
}
