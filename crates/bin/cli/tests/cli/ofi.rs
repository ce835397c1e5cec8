//! Tests of the command on libfabric: refusals, which need no library, and runs, which need one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::channel::{Meeting, files_arrive, the_other_side_dies};
use crate::support::{Scratch, ran, run, stentor};

/// Maximum time for which a test waits for one step.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn provider_is_refused_on_other_fabrics() {
    for command in [&["demo"][..], &["demo", "--neb"], &["config", "init", "-o", "/no/such/place"]] {
        run([command, &["--provider", "shm"]].concat()).refused(&[
            "provider `shm`",
            "does not use libfabric",
            "--fabric ofi",
        ]);
    }
    run(["demo", "--as-efa"]).refused(&["restrictions of `efa`", "leave out --as-efa"]);
    run(["bench", "channel", "--fabric", "ofi", "--as-efa"]).refused(&["restrictions of `efa`", "leave out --as-efa"]);
    let bad = run(["demo", "--fabric", "ofi", "--as-efa=ena"]);
    assert!(bad.code == 2 && bad.stderr.contains("no restrictions are called `ena`"), "{}", bad.stderr);
    run(["channel", "cat", "there", "--provider", "shm"]).refused(&["provider `shm`", "--fabric ofi"]);
    run(["bench", "channel", "--provider", "shm"]).refused(&["provider `shm`", "--fabric ofi"]);
    let bad = run(["demo", "--fabric", "ofi", "--provider", "a b"]);
    assert!(bad.code == 2 && bad.stderr.contains("no provider of libfabric is called `a b`"), "{}", bad.stderr);
    run(["demo", "--fabric", "ofi", "--drop-chance", "0.1"]).refused(&["ofi", "libfabric makes the packets"]);
}

#[test]
fn a_configuration_names_the_provider() {
    let scratch = Scratch::new();
    let file = scratch.path("cluster.toml");
    let path = file.to_str().unwrap();
    run(["config", "init", "--fabric", "ofi", "--provider", "efa,tcp;ofi_rxm", "--as-efa", "-o", path]);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nas_efa = \"efa\""), "{text}");
    assert!(text.contains("fabric  = \"ofi\"") && text.contains("\nprovider = \"efa,tcp;ofi_rxm\"\n"), "{text}");
    let document = run(["config", "check", path, "--json"]).document("config-check");
    assert_eq!(document["fabric"], "ofi");
    let notes: Vec<_> = document["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    let told = |what: &str| notes.iter().any(|note| note.contains(what));
    assert!(told("libfabric would use") || told("no process can start here: "), "{notes:?}");
    assert!(scratch.path("cluster.key").exists() && !told("cluster.key"), "`config init` made it: {notes:?}");
    fs::write(&file, text.replace("\"ofi\"", "\"shm\"")).unwrap();
    let document = run(["config", "check", path, "--json"]).document("config-check");
    assert!(document["notes"].to_string().contains("`[ofi]` is not used on shm"), "{document:#}");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn named_provider_is_not_replaced_by_another() {
    let demo = |provider| run(["demo", "--fabric", "ofi", "--provider", provider]);
    let there = ["is not available", "available: ", "tcp;ofi_rxm", "stentor doctor"];
    demo("nothing").refused(&there);
    demo("nothing,nobody").refused(&[
        "none of the providers nothing, nobody is available",
        "; available: ",
        "tcp;ofi_rxm",
    ]);
    // The provider `tcp` alone has no endpoints of the type that the fabric needs. libfabric would substitute another
    // provider.
    demo("tcp").refused(&["provider \"tcp\" was requested", "offers \"tcp;ofi_rxm\""]);
    let absent = run(["channel", "cat", "127.0.0.1:7396", "--fabric", "ofi", "--provider", "nothing"]);
    absent.refused(&there[..3]);
    run(["bench", "channel", "--fabric", "ofi", "--provider", "nothing"]).refused(&there[..3]);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn doctor_names_the_chosen_provider_and_the_reason() {
    let document = run(["doctor", "--json"]).document("doctor");
    let ofi = &document["fabrics"]["ofi"];
    assert_eq!(ofi["available"], true, "{ofi}");
    let why = ofi["why"].as_str().unwrap();
    for words in ["it would use shm on ", " within this host, ", " between hosts (the first that exists of efa,"] {
        assert!(why.contains(words), "{why}");
    }
}

/// The test runs as in a container with the default size of `/dev/shm`. Each connection of libfabric's `shm` takes some
/// MiB there.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn small_dev_shm_is_named_in_the_error() {
    const IN_64_MIB: &str = "mount --make-rprivate / && mount -t tmpfs -o size=64m none /dev/shm && exec \"$@\"";
    let inside = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", IN_64_MIB, "sh"]).args(args);
        command.output().expect("`unshare` starts: install util-linux")
    };
    let size = inside(&["stat", "-f", "-c", "%b %S", "/dev/shm"]);
    let size = String::from_utf8_lossy(&size.stdout).into_owned();
    let numbers: Vec<u64> = size.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.iter().product::<u64>(), 64 << 20, "this test needs user namespaces; `stat` says {size:?}");
    let program = stentor().get_program().to_str().unwrap().to_owned();
    let demo = [&program[..], "demo", "--fabric", "ofi", "--messages-limit", "60", "--no-kill"];
    let unnamed = ran(&inside(&demo));
    // Either there is no space for one more endpoint, or so little that libfabric does not offer the provider at all.
    for part in [" in /dev/shm, where ", " of 64.0 MiB are left", "--shm-size", "another provider"] {
        assert!(unnamed.code == 1 && unnamed.stderr.contains(part), "`{part}`: {}: {}", unnamed.code, unnamed.stderr);
    }
    let doctor = ran(&inside(&[&program, "doctor"])).stdout;
    let told = doctor.lines().any(|line| line.starts_with("limited") && line.contains("64.0 MiB are left in /dev/shm"));
    assert!(told, "{doctor}");
}

/// A running member.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    /// Waits until the member has logged `what`. Returns the lines up to then.
    fn until(&mut self, what: &str) -> Vec<String> {
        let (begin, mut said) = (Instant::now(), Vec::new());
        let mut lines = BufReader::new(self.0.stderr.take().unwrap()).lines();
        while !said.iter().any(|line: &String| line.contains(what)) {
            assert!(begin.elapsed() < PATIENCE, "{said:?}");
            said.push(lines.next().expect("the member runs until it has logged that").unwrap());
        }
        // The member continues to write to standard error.
        std::thread::spawn(move || lines.map_while(Result::ok).count());
        said
    }
}

/// The test configures a cluster as a user does, and starts members and a client. Each of them reports the provider
/// that carries its data, and one of the members leads.
#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn nodes_and_a_client_name_their_provider() {
    for (n, provider) in ["tcp;ofi_rxm", "shm", "udp;ofi_rxd"].into_iter().enumerate() {
        let scratch = Scratch::new();
        let file = scratch.path("cluster.toml");
        let path = file.to_str().unwrap();
        run(["config", "init", "--fabric", "ofi", "--provider", provider, "--groups", "1", "-o", path]);
        let network = format!("127.{}.", 200 + 10 * n + std::process::id() as usize % 10);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("127.1.", &network).replace("clients = 16", "clients = 1")).unwrap();
        scratch.file("cluster.key", "a key that is long enough for this test");
        let directory = scratch.path("sockets");
        let node = |id: &str| {
            let mut command = stentor();
            command.args(["node", "--config", path, "--id", id, "--directory"]).arg(&directory);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            Node(command.spawn().unwrap())
        };
        let mut nodes = ["g1.1", "g1.2", "g1.3"].map(node);
        let told = format!("libfabric's provider {provider} ");
        for node in &mut nodes {
            let said = node.until("all members are connected");
            assert!(said.iter().any(|line| line.contains(&told)), "{said:?}");
        }
        let mut cast: Command = stentor();
        cast.args(["cast", "--config", path, "--to", "g1"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut cast = cast.spawn().unwrap();
        cast.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
        let cast = ran(&cast.wait_with_output().unwrap());
        assert!(cast.code == 0 && cast.stderr.contains(&told), "{}", cast.stderr);
        assert!(cast.stderr.contains("2 messages"), "{}", cast.stderr);
        // On a busy machine the members may not answer one request in time.
        let show = || run(["leader", "show", "--config", path, "--directory", directory.to_str().unwrap()]);
        let shown = (0..20).map(|_| show()).find(|shown| shown.code == 0).unwrap_or_else(show);
        assert!(shown.code == 0 && shown.stdout.contains("leads"), "{}{}", shown.stdout, shown.stderr);
    }
}

const SHM: &[&str] = &["--provider", "shm"];

fn meetings() -> [Meeting; 6] {
    let on = |more| Meeting::new("ofi").with(more);
    [
        on(&["--provider", "tcp;ofi_rxm"]),
        on(SHM),
        on(&["--provider", "udp;ofi_rxd"]),
        on(&["--provider", "sockets"]),
        on(&["--provider", "tcp;ofi_rxm", "--as-efa"]),
        on(&["--provider", "udp;ofi_rxd", "--as-efa=efa-direct"]),
    ]
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn files_arrive_complete_with_their_hash() {
    meetings().iter().for_each(files_arrive);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn lost_peer_ends_the_transfer_and_is_named() {
    // `shm` is left out. libfabric 1.17 uses spin locks in memory that both processes share. If a process is killed
    // while it holds such a lock, the other one stays in `fi_write` for ever.
    meetings().iter().filter(|meeting| meeting.more != SHM).for_each(the_other_side_dies);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn bench_has_a_row_of_the_bare_provider() {
    for provider in ["tcp;ofi_rxm", "shm", "udp;ofi_rxd"] {
        let few = ["--iterations", "700", "--rounds", "1", "--json"];
        let ran = run([&["bench", "channel", "--fabric", "ofi", "--provider", provider][..], &few].concat());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let document = ran.document("bench");
        let carrier = document["environment"]["carrier"].as_str().unwrap();
        assert!(carrier.contains(&format!("provider {provider} ")), "{carrier}");
        let rows = document["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 15, "{document:#}");
        let beside: Vec<_> = rows.iter().filter(|row| row["name"].as_str().unwrap().contains("fi_pingpong")).collect();
        let sizes: Vec<_> = beside.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [8, 4096, 65_536], "{document:#}");
        assert!(beside.iter().all(|row| row["p50_us"].as_f64().unwrap() > 0.0), "{document:#}");
        let of_provider = |row: &serde_json::Value| row["bound"]["what"].as_str().unwrap().contains("fi_tsend");
        assert!(rows.iter().all(of_provider), "{document:#}");
    }
}
