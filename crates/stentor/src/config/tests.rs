use std::path::Path;

use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"cluster = "example"
fabric = "shm"
key = "env:STENTOR_KEY"
[election]
kind = "heartbeat"
[limits]
message_bytes = 65536
window = 1024
clients = 2
[[group]]
id = "g1"
process = [ { id = "g1.1", address = "127.0.0.1:7101" }, { id = "g1.2", address = "localhost:7102" } ]
[[group]]
id = "g2"
process = [ { id = "g2.1", address = "[::1]:7103" } ]
"#;

fn parse(text: &str) -> Result<ClusterConfig, ConfigError> {
    ClusterConfig::parse(Path::new("cluster.toml"), text)
}

fn good() -> ClusterConfig {
    parse(GOOD).expect("the good file is valid")
}

/// Replaces a part of the good file, which must contain it, and returns the error.
fn refused(from: &str, to: &str) -> ConfigError {
    assert!(GOOD.contains(from), "`{from}` is not in the good file");
    parse(&GOOD.replacen(from, to, 1)).expect_err("the change is an error")
}

#[test]
fn good_file_is_read_as_written() {
    let config = good();
    assert_eq!(config.cluster(), "example");
    assert_eq!(config.fabric(), FabricKind::Shm);
    assert_eq!(config.key(), Some(&KeySource::Env("STENTOR_KEY".into())));
    assert_eq!(config.limits(), &Limits { clients: 2, ..Limits::default() });
    assert_eq!(config.groups().len(), 2);
    assert_eq!(config.groups()[0].members()[1].id(), "g1.2");
    assert_eq!(config.groups()[0].members()[1].address(), "localhost:7102");
    assert_eq!(config.group_index("g2"), Some(1));
    assert_eq!(config.client_timeout(), stentor_multicast::CLIENT_TIMEOUT, "the default");
    assert_eq!(config.total_loss(), stentor_multicast::TotalLoss::Begin);
    let careful = parse(&GOOD.replacen("[election]", "total_loss = \"refuse\"\n[election]", 1))
        .expect("the configuration is valid");
    assert_eq!(careful.total_loss(), stentor_multicast::TotalLoss::Refuse);
    let patient =
        parse(&GOOD.replacen("[election]", "client_timeout_ms = 600000\n[election]", 1)).expect("the longest");
    assert_eq!(patient.client_timeout(), Duration::from_secs(600));
    assert_eq!(patient.fingerprint(), config.fingerprint(), "each member has its own patience");
    assert_eq!(config.clock_bound(), stentor_multicast::PhysicalClock::BOUND, "the default");
    for (ms, seconds) in [(200, 0.2), (3_600_000, 3_600.0)] {
        let set = parse(&GOOD.replacen("[limits]", &format!("[limits]\nclock_bound_ms = {ms}"), 1))
            .expect("the clock bound is valid");
        assert_eq!(set.clock_bound(), Duration::from_secs_f64(seconds));
        assert_eq!(set.fingerprint(), config.fingerprint(), "it may be raised member by member, to mend a cluster");
    }
}

#[test]
fn members_precede_clients_in_the_table() {
    let table = good().process_table();
    let names: Vec<_> = table.entries().iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["g1.1", "g1.2", "g2.1", "c0", "c1"]);
    assert_eq!(good().processes(), 5);
    assert_eq!(table.find("g2.1"), Some(ProcessId(2)));
    assert_eq!(table.find("c2"), None);
    assert_eq!(table.get(ProcessId(2)).unwrap().role, Role::Member { group: 1, index: 0 });
    assert_eq!(table.get(ProcessId(4)).unwrap().role, Role::Client { place: 1 });
    assert_eq!(table.get(ProcessId(5)), None);
}

#[test]
fn a_majority_is_more_than_half() {
    for (replicas, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
        let template =
            Template { cluster: "x".into(), groups: 1, replicas, limits: Limits::default(), ground: Ground::Shm };
        let config = parse(&template.render()).unwrap();
        assert_eq!(config.groups()[0].majority(), majority, "of {replicas}");
    }
}

#[test]
fn every_refusal_names_line_problem_and_remedy() {
    // (replaced part, replacement, line, column, problem, part of the remedy)
    let cases = [
        ("fabric =", "colour = 1\nfabric =", 2, 1, "unknown key `colour`", "cluster, fabric, key"),
        ("window =", "windows =", 8, 1, "unknown key `windows`", "window"),
        ("{ id = \"g2.1\"", "{ port = 1, id = \"g2.1\"", 15, 15, "unknown key `port`", "id, address"),
        ("fabric = \"shm\"\n", "", 1, 1, "the key `fabric` is missing", "add `fabric = …`"),
        (
            "cluster = \"example\"",
            "cluster = 7",
            1,
            11,
            "invalid type: integer `7`, expected a string",
            "expected type",
        ),
        ("cluster = \"example\"", "cluster \"example\"", 1, 9, "not valid TOML", "correct this line"),
        ("\"g2\"", "\"g1\"", 14, 6, "duplicate group id `g1`: the first is in line 11", "its own group id"),
        ("\"g2.1\"", "\"g1.2\"", 15, 20, "duplicate process id `g1.2`: the first is in line 12", "its own process id"),
        ("[::1]:7103", "127.0.0.1:7101", 15, 38, "duplicate address", "its own address"),
        (
            "[ { id = \"g2.1\", address = \"[::1]:7103\" } ]",
            "[]",
            15,
            11,
            "group `g2` has no process",
            "list its processes",
        ),
        ("\"g2.1\"", "\"c7\"", 15, 20, "process id `c7` is the name of a client id", "not `c` and a number"),
        ("\"g2\"", "\"g 2\"", 14, 6, "the character ` ` is not allowed", "letters, digits"),
        ("\"example\"", "\"\"", 1, 11, "it is empty", "letters, digits"),
        ("\"example\"", "\"../x\"", 1, 11, "the character `/` is not allowed", "letters, digits"),
        ("\"example\"", "\".x\"", 1, 11, "does not begin with", "letters, digits"),
        ("\"example\"", "\"a123456789a123456789a1234\"", 1, 11, "it has 25 characters", "1 to 24"),
        (
            "\"shm\"",
            "\"ofi:tcp\"",
            2,
            10,
            "fabric `ofi:tcp` names a provider, too",
            "write fabric = \"ofi\", and provider = \"tcp\" in [ofi]",
        ),
        ("\"shm\"", "\"tcp\"", 2, 10, "unknown fabric `tcp`", "use `shm`, `roce`, `verbs`, `ofi` or `sim`"),
        ("\"heartbeat\"", "\"zookeeper\"", 5, 8, "election `zookeeper` is not in this version", "heartbeat"),
        ("\"heartbeat\"", "\"dice\"", 5, 8, "unknown election `dice`", "heartbeat"),
        ("\"env:STENTOR_KEY\"", "\"secret\"", 3, 7, "the key must say where it is", "never the key itself"),
        ("65536", "16777217", 7, 17, "limits.message_bytes = 16777217 is outside 1..=16777216", "from 1 to 16777216"),
        ("65536", "-1", 7, 17, "limits.message_bytes = -1 is outside", "from 1 to"),
        ("1024", "131072", 8, 10, "limits.window = 131072 is outside 1..=65536", "from 1 to 65536"),
        ("1024", "1000", 8, 10, "limits.window = 1000 is not a power of two", "use 512 or 1024"),
        ("clients = 2", "clients = 1025", 9, 11, "limits.clients = 1025 is outside 1..=1024", "from 1 to 1024"),
        ("clients = 2", "ring_kib = 8", 9, 12, "limits.ring_kib = 8 is outside 16..=65536", "from 16"),
        ("clients = 2", "reply_ring_kib = 0", 9, 18, "limits.reply_ring_kib = 0 is outside 1..=65536", "from 1"),
        ("[election]", "total_loss = \"go\"\n[election]", 4, 14, "unknown total_loss `go`", "use `begin` or `refuse`"),
        ("clients = 2", "expel_ms = 49", 9, 12, "limits.expel_ms = 49 is outside 50..=600000", "from 50"),
        ("[election]", "client_timeout_ms = 99\n[election]", 4, 21, "client_timeout_ms = 99 is outside", "from 100"),
        (
            "\"heartbeat\"",
            "\"heartbeat\"\ntimeout_max_ms = 60001",
            6,
            18,
            "election.timeout_max_ms = 60001 is",
            "from 20",
        ),
        ("1024", "0x1_0000_0000_0000_0000", 8, 10, "invalid type: integer", "expected type"),
    ];
    for (from, to, line, column, problem, remedy) in cases {
        let error = refused(from, to);
        let text = error.to_string();
        assert!(text.starts_with(&format!("cluster.toml:{line}:{column}: ")), "{to}: {text}");
        assert!(error.problem.to_string().contains(problem), "{to}: {text}");
        assert!(error.remedy().contains(remedy), "{to}: {text}");
    }
}

#[test]
fn a_key_in_the_wrong_place_is_never_shown() {
    assert!(!refused("env:STENTOR_KEY", "hunter2").to_string().contains("hunter2"));
}

#[test]
fn bad_addresses_are_refused_with_their_reason() {
    let cases = [
        ("", "the port is missing"),
        ("127.0.0.1", "the port is missing"),
        ("127.0.0.1:0", "port 0"),
        ("db:0", "port 0"),
        ("db:70000", "not a number from 1 to 65535"),
        ("db:", "not a number"),
        ("256.0.0.1:7101", "not a valid IPv4 address"),
        (":7101", "not a valid IPv4 address"),
        ("0.0.0.0:7101", "unspecified"),
        ("[::]:7101", "unspecified"),
        ("224.0.0.1:7101", "multicast"),
        ("::1:7101", "must be in brackets"),
        ("fe80::1:2:3:zz:7101", "brackets"),
        ("[fe80::1:2:3:zz]:7101", "not a valid IPv6 address"),
        ("[127.0.0.1]:7101", "not a valid IPv6 address"),
        ("[fe80::1]:7101", "link-local"),
        ("[fe80::1%2]:7101", "link-local"),
        ("[fe80::1%eth0]:7101", "link-local"),
        ("[febf::1%eth0]:7101", "link-local"),
        ("[fd00::1%eth0]:7101", "only link-local addresses have a scope"),
        ("[::ffff:127.0.0.1]:7101", "it is an IPv4 address"),
        ("[::ffff:10.0.0.1%2]:7101", "it is an IPv4 address"),
        ("[::1]", "the port is missing"),
        ("[::1]:0", "port 0"),
        ("0.0.0.7:7101", "no host has this address"),
        ("255.255.255.255:7101", "no host has this address"),
        ("a b:7101", "neither an IP address nor a host name"),
        ("-a:7101", "neither an IP address nor a host name"),
    ];
    for (address, reason) in cases {
        let error = refused("127.0.0.1:7101", address);
        assert!(matches!(error.problem, Problem::BadAddress { .. }), "{address}: {error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains(address), "{address}: {error}");
        assert_eq!(error.position.unwrap().line, 12);
    }
    let host = GOOD.replace("localhost:7102", "db-2.example.org:7102");
    parse(&host).unwrap();
}

#[test]
fn one_address_in_two_spellings_is_a_duplicate() {
    for (first, second) in [("[::1]:7101", "[0:0::1]:7101"), ("LocalHost:7101", "localhost:7101")] {
        let text = GOOD.replace("127.0.0.1:7101", first).replace("localhost:7102", second);
        let error = parse(&text).unwrap_err();
        assert!(matches!(error.problem, Problem::Duplicate { what: "address", .. }), "{second}: {error}");
        assert!(error.to_string().contains(second), "{error}");
    }
}

#[test]
fn too_many_groups_or_processes_are_refused() {
    let render = |groups, replicas| {
        Template { cluster: "x".into(), groups, replicas, limits: Limits::default(), ground: Ground::Shm }.render()
    };
    assert_eq!(parse(&render(256, 64)).unwrap().processes(), 256 * 64 + 16);
    let error = parse(&render(257, 1)).unwrap_err();
    assert_eq!(error.problem, Problem::TooManyGroups { count: 257 });
    let error = parse(&render(1, 65)).unwrap_err();
    assert_eq!(error.problem, Problem::TooManyProcesses { group: "g1".into(), count: 65 });
    let error = parse(&render(0, 3)).unwrap_err();
    assert_eq!(error.problem, Problem::NoGroups);
}

#[test]
fn missing_file_is_reported() {
    let error = ClusterConfig::load(Path::new("no/such/cluster.toml")).unwrap_err();
    assert!(error.to_string().starts_with("no/such/cluster.toml: cannot read the configuration"), "{error}");
    assert!(error.remedy().contains("stentor config init"));
}

/// Returns the good file with a group of four that broadcasts. `more` follows `[neb]`.
fn broadcasting(more: &str) -> String {
    let process = |n: usize| format!("{{ id = \"n.{n}\", address = \"127.0.0.1:72{n:02}\" }}");
    let processes: Vec<_> = (1..=4).map(process).collect();
    format!("{GOOD}[[group]]\nid = \"n\"\nprocess = [ {} ]\n[neb]\n{more}", processes.join(", "))
}

fn keys(count: u8) -> String {
    let key = |n: u8| {
        stentor_neb::Authority::public_of(&[n; 32]).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let keys: Vec<_> = (1..=count).map(|n| format!("\"n.{n}\" = \"{}\"", key(n))).collect();
    format!("keys = {{ {} }}\n", keys.join(", "))
}

#[test]
fn broadcast_is_read_as_written_and_part_of_the_fingerprint() {
    assert_eq!(good().neb(), None);
    let written = format!("group = \"n\"\nfault_model = \"lying-hosts\"\nwindow = 8\n{}", keys(4));
    let config = parse(&broadcasting(&written)).unwrap();
    let neb = config.neb().unwrap();
    assert_eq!((neb.group(), neb.config().processes, neb.config().quorum()), (2, 4, 3));
    assert_eq!((neb.config().window, neb.config().signed, neb.keys().len()), (8, true, 4));
    let authority = |secret| neb.authority(config.salt(), stentor_fabric::ProcessId(1), &[secret; 32]);
    assert!(authority(2).is_ok());
    assert!(authority(1).unwrap_err().to_string().contains("not the one of process 1"));
    for other in [
        written.replace("window = 8", "window = 9"),
        written.replace("-hosts", "-sender"),
        written.replace(&keys(4), ""),
    ] {
        assert_ne!(parse(&broadcasting(&other)).unwrap().fingerprint(), config.fingerprint(), "{other}");
    }
    let all = parse(&broadcasting("group = \"g1\"\nmode = \"all\"")).unwrap();
    assert_eq!(all.neb().unwrap().config().mode, stentor_neb::Mode::All);
}

#[test]
fn impossible_broadcasts_are_refused_with_the_arithmetic() {
    let hosts = "fault_model = \"lying-hosts\"\n";
    let one_less = keys(3);
    let foreign = keys(4).replace("n.4", "n.5");
    let cases = [
        (format!("group = \"n\"\n{hosts}faults = 2"), "n ≥ 3f+1 = 7; there are n = 4 processes", "change [neb]"),
        (
            "group = \"g1\"\nfault_model = \"lying-sender\"".to_owned(),
            "n−1 ≥ 2f+1 = 3; there are n = 2",
            "change [neb]",
        ),
        (format!("group = \"g2\"\n{hosts}faults = 0"), "1 processes: a broadcast has 2 to 64", "change [neb]"),
        (hosts.to_owned(), "the key `group` is missing", "add `group"),
        ("group = \"n\"".to_owned(), "the key `fault_model` is missing", "add `fault_model"),
        (format!("group = \"x\"\n{hosts}"), "there is no group `x`", "name a group"),
        ("group = \"n\"\nmode = \"most\"".to_owned(), "unknown mode `most`", "`quorum` or `all`"),
        ("group = \"n\"\nfault_model = \"x\"".to_owned(), "unknown fault_model `x`", "`lying-hosts` or"),
        (format!("group = \"n\"\n{hosts}window = 0"), "a window of 0 broadcasts", "change [neb]"),
        (format!("group = \"n\"\n{hosts}window = -1"), "neb.window = -1 is outside", "at most 16384"),
        (format!("group = \"n\"\n{hosts}payload_bytes = 1048577"), "outside 0..=1048576", "at most 1048576"),
        (format!("group = \"n\"\n{hosts}{one_less}"), "the key of `n.4`: it is missing", "`stentor neb key`"),
        (format!("group = \"n\"\n{hosts}{foreign}"), "the key of `n.5`: no process", "`stentor neb key`"),
        (format!("group = \"n\"\n{hosts}keys = {{ \"n.1\" = \"7\" }}"), "`n.1`: it is not 64 hex", "`stentor neb key`"),
        (format!("group = \"n\"\n{hosts}secret = 1"), "unknown key `secret`", "group, mode"),
    ];
    for (written, problem, remedy) in cases {
        let error = parse(&broadcasting(&written)).expect_err(&written);
        assert!(error.problem.to_string().contains(problem), "{written}: {error}");
        assert!(error.remedy().contains(remedy), "{written}: {error}");
    }
}

#[test]
fn fingerprint_covers_what_processes_must_agree_on() {
    let base = good();
    let changes = [
        ("\"example\"", "\"other\""),
        ("\"shm\"", "\"sim\""),
        ("65536", "65528"),
        ("1024", "512"),
        ("clients = 2", "clients = 3"),
        ("clients = 2", "clients = 2\nring_kib = 512"),
        ("clients = 2", "clients = 2\nbody_ring_kib = 512"),
        ("clients = 2", "clients = 2\nreply_bytes = 0"),
        ("clients = 2", "clients = 2\nreply_ring_kib = 128"),
        ("clients = 2", "clients = 2\nsessions = 7"),
        ("\"g2\"", "\"g3\""),
        ("\"g2.1\"", "\"g2.7\""),
        (", { id = \"g1.2\", address = \"localhost:7102\" }", ""),
    ];
    for (from, to) in changes {
        let changed = parse(&GOOD.replacen(from, to, 1)).unwrap();
        assert_ne!(base.fingerprint(), changed.fingerprint(), "{from} -> {to}");
        assert_ne!(base.salt(), changed.salt(), "{from} -> {to}");
    }
    for (from, to) in [("env:STENTOR_KEY", "file:key"), ("localhost:7102", "127.0.0.1:9")] {
        let same = parse(&GOOD.replacen(from, to, 1)).unwrap();
        assert_eq!(base.fingerprint(), same.fingerprint(), "{from} -> {to}");
    }
    assert_ne!(base.salt(), base.fingerprint());
}

#[test]
fn on_roce_every_process_needs_its_own_host() {
    let mixed = GOOD.replace("\"shm\"", "\"roce\"");
    let error = parse(&mixed).unwrap_err().to_string();
    assert!(error.contains("`[::1]:7103` and the address in line") && error.contains("or all IPv6"), "{error}");
    let roce = mixed.replace("[::1]:7103", "127.0.0.3:1");
    assert_eq!(parse(&roce).unwrap().fabric(), FabricKind::Roce);
    let error = parse(&roce.replace("localhost:7102", "127.0.0.1:7102")).unwrap_err();
    assert!(
        error.to_string().contains("duplicate IP address") && error.to_string().contains("the first is"),
        "{error}"
    );
    assert!(parse(&GOOD.replace("localhost:7102", "127.0.0.1:7102")).is_ok(), "shm does not use them");
    let ground = Ground::Roce { network: 9, key: "file:a.key".to_owned() };
    let (groups, replicas, limits) = (3, 5, Limits::default());
    let text = Template { cluster: "x".into(), groups, replicas, limits, ground }.render();
    let config = parse(&text).unwrap();
    assert_eq!(config.groups()[2].members()[4].address(), "127.9.3.5:7305");
    assert_eq!(config.key(), Some(&KeySource::File("a.key".into())));
}

#[test]
fn on_verbs_processes_may_share_an_address_and_devices_are_set() {
    let ground = Ground::Verbs { address: "10.0.0.1".parse().unwrap(), key: "file:a.key".to_owned() };
    let text = Template { cluster: "x".into(), groups: 2, replicas: 3, limits: Limits::default(), ground }.render();
    let plain = parse(&text).unwrap();
    assert_eq!((plain.fabric(), plain.groups()[1].members()[2].address()), (FabricKind::Verbs, "10.0.0.1:7203"));
    assert_eq!(*plain.verbs(), VerbsSettings::default());
    let with = |table: &str| parse(&format!("{text}\n[verbs]\n{table}\n"));
    let set =
        with("device = \"mlx5_1\"\nport = 2\ngid_index = 3\nnuma_node = 1\nmtu = 4096\nrd_atomic = 4\ntimeout = 18");
    let set = set.unwrap();
    let VerbsSettings { device, port, gid_index, numa_node, mtu, tuning, .. } = set.verbs().clone();
    assert_eq!((device.as_deref(), port, gid_index, mtu), (Some("mlx5_1"), Some(2), Some(3), Some(4096)));
    let tuning = tuning.unwrap();
    assert_eq!((tuning.reads, tuning.timeout, tuning.rnr_retries), (4, 18, 6));
    assert_eq!((numa_node, set.fingerprint()), (Some(1), plain.fingerprint()), "hosts may have other devices");
}

/// Sets each key of `[verbs]` to values at the ends of its range and beyond them, and checks the errors of the latter.
#[test]
fn every_key_of_verbs_is_refused_beyond_its_range_with_place_and_remedy() {
    let numbers = [
        ("port", 1, 255),
        ("gid_index", 0, 255),
        ("numa_node", 0, 1023),
        ("mtu", 256, 4096),
        ("timeout", 0, 31),
        ("retry_cnt", 0, 7),
        ("rnr_retry", 0, 7),
        ("min_rnr_timer", 0, 31),
        ("rd_atomic", 1, 128),
        ("traffic_class", 0, 255),
        ("service_level", 0, 15),
        ("inline_bytes", 64, 4096),
    ];
    let base = GOOD.replacen("\"shm\"", "\"verbs\"", 1).replace("[::1]:7103", "127.0.0.3:7103");
    let line = format!("{base}\n[verbs]\n").lines().count() + 1;
    let with = |key: &str, value: &str| parse(&format!("{base}\n[verbs]\n{key} = {value}\n"));
    let refused = |key: &str, value: &str, problem: &str, remedy: &str| {
        let error = with(key, value).unwrap_err();
        let place = format!("cluster.toml:{line}:{}: ", key.len() + " = ".len() + 1);
        let text = error.to_string();
        assert!(text.starts_with(&place), "{key} = {value}: {text}, not at {place}");
        assert!(text.contains(problem) && error.remedy().contains(remedy), "{key} = {value}: {text}");
    };
    for (key, min, max) in numbers {
        for value in [min, max] {
            with(key, &value.to_string()).unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
        }
        for value in [min - 1, max + 1, i64::MAX, i64::MIN] {
            let problem = format!("verbs.{key} = {value} is outside {min}..={max}");
            let remedy = format!("set verbs.{key} to a value from {min} to {max}");
            refused(key, &value.to_string(), &problem, &remedy);
        }
        refused(key, "\"4\"", "invalid type: string", "expected type");
    }
    refused("mtu", "1500", "verbs.mtu = 1500 is not a power of two", "use 1024 or 2048");
    for name in ["", "mlx5 0", "../rxe0", &"m".repeat(64)] {
        refused("device", &format!("{name:?}"), &format!("no RDMA device is called `{name}`"), "stentor doctor");
    }
    refused("device", "5", "invalid type: integer", "expected type");
    let unknown = with("colour", "1").unwrap_err();
    assert!(unknown.to_string().contains("unknown key `colour`"), "{unknown}");
    for key in numbers.map(|(key, _, _)| key).into_iter().chain(["device"]) {
        assert!(unknown.remedy().contains(key), "this test omits the key, or the key is unknown: {key}");
    }
    let known = unknown.remedy().split("known here: ").nth(1).unwrap().split(", ").count();
    assert_eq!(known, numbers.len() + 1, "this test omits a key");
}

#[test]
fn ofi_providers_are_tried_in_the_given_order() {
    let render = |provider: Option<&str>| {
        let (provider, as_efa) = (provider.map(str::to_owned), provider.map(|_| AsEfa::EfaDirect));
        let ground = Ground::Ofi { network: 9, key: "file:a.key".to_owned(), provider, as_efa };
        Template { cluster: "x".into(), groups: 2, replicas: 3, limits: Limits::default(), ground }.render()
    };
    let plain = parse(&render(None)).unwrap();
    assert_eq!((plain.fabric(), plain.groups()[1].members()[2].address()), (FabricKind::Ofi, "127.9.2.3:7203"));
    assert_eq!(*plain.ofi(), OfiSettings::default());
    let named = parse(&render(Some("efa, tcp;ofi_rxm"))).unwrap();
    assert_eq!(named.ofi().providers, ["efa", "tcp;ofi_rxm"]);
    assert_eq!(named.ofi().as_efa, Some(AsEfa::EfaDirect));
    let restricted = AsEfa::EfaDirect.mask();
    assert!(restricted.tagged && restricted.ordered_writes && !AsEfa::Efa.mask().tagged);
    assert_eq!(named.fingerprint(), plain.fingerprint(), "the provider is compared when processes meet");
    let ground = Ground::Shm;
    let bare = Template { cluster: "x".into(), groups: 1, replicas: 3, limits: Limits::default(), ground }.render();
    let bare = bare.replacen("\"shm\"", "\"ofi\"", 1);
    let with = |table: &str| parse(&format!("{bare}\n[ofi]\n{table}\n"));
    let set = with("provider = \"shm\"\ndevice = \"eth1\"\nrnr_timeout_ms = 20\nfence_timeout_ms = 30").unwrap();
    let OfiSettings { providers, device, rnr_timeout, fence_timeout, as_efa: None } = set.ofi().clone() else {
        panic!("restrictions were imposed without a request")
    };
    assert_eq!((providers, device.as_deref()), (vec!["shm".to_owned()], Some("eth1")));
    let ms = |ms| Some(std::time::Duration::from_millis(ms));
    assert_eq!((rnr_timeout, fence_timeout), (ms(20), ms(30)));
    for (table, what) in [
        ("provider = \"\"", "no provider of libfabric is called ``; name providers as `stentor doctor` lists them"),
        ("provider = \"tcp;ofi_rxm,\"", "is called ``"),
        ("provider = \"shm, shm\"", "a second provider `shm`"),
        ("provider = \"a b\"", "is called `a b`"),
        ("as_efa = \"yes\"", "no restrictions are called `yes`; write \"efa\""),
        ("rnr_timeout_ms = 0", "ofi.rnr_timeout_ms"),
        ("fence_timeout_ms = 60001", "ofi.fence_timeout_ms"),
        ("port = 1", "port"),
    ] {
        let error = with(table).unwrap_err().to_string();
        assert!(error.contains(what), "{table}: {error}");
    }
}

#[test]
fn switch_has_an_address_and_is_not_part_of_the_fingerprint() {
    let ground = Ground::Roce { network: 9, key: "file:a.key".to_owned() };
    let bare = Template { cluster: "x".into(), groups: 1, replicas: 3, limits: Limits::default(), ground }.render();
    let with = |table: &str| parse(&format!("{bare}\n[switch]\n{table}\n"));
    assert_eq!(parse(&bare).unwrap().switch(), None);
    let set = with("control = \"127.0.1.1:7480\"\nlease_ms = 500").unwrap();
    assert_eq!(set.fingerprint(), parse(&bare).unwrap().fingerprint());
    let switch = set.switch().unwrap();
    assert_eq!((switch.control, switch.lease.as_millis()), ("127.0.1.1:7480".parse().unwrap(), 500));
    for (table, what) in [
        ("", "control"),
        ("control = \"127.0.1.1\"", "the port is missing"),
        ("control = \"switch:7480\"", "the switch needs an IPv4 address, not a name"),
        ("control = \"[::1]:7480\"", "the switch needs an IPv4 address, not a name"),
        ("control = \"127.0.1.1:7480\"\nlease_ms = 99", "switch.lease_ms"),
        ("control = \"127.0.1.1:7480\"\nleas_ms = 99", "leas_ms"),
    ] {
        let error = with(table).unwrap_err().to_string();
        assert!(error.contains(what), "{table}: {error}");
    }
}

/// The form is part of the protocol between processes, so a change of it requires a new format version.
#[test]
fn fingerprint_of_format_2_is_unchanged() {
    assert_eq!(FORMAT_VERSION, 2);
    assert_eq!(format!("{:016x}", good().fingerprint()), "cc720d24f35a45bd");
}

#[test]
fn memory_grows_with_each_limit_and_adds_up() {
    let base = good().memory();
    let grow = |from, to| parse(&GOOD.replacen(from, to, 1)).unwrap().memory().total_bytes();
    for (from, to) in [
        ("clients = 2", "clients = 3"),
        ("clients = 2", "clients = 2\nring_kib = 512"),
        ("clients = 2", "clients = 2\nbody_ring_kib = 2048"),
        ("clients = 2", "clients = 2\nreply_ring_kib = 128"),
        ("clients = 2", "clients = 2\nreply_bytes = 100000"),
        ("window = 1024", "window = 2048"),
    ] {
        assert!(grow(from, to) > base.total_bytes(), "{to}");
    }
    let each: Vec<_> = base.processes.iter().map(|p| (p.group_size, p.processes, p.bytes())).collect();
    let [(Some(1), 1, single), (Some(2), 2, pair), (None, 2, client)] = each[..] else { panic!("{each:?}") };
    assert_eq!(base.total_bytes(), single + 2 * pair + 2 * client);
    assert!(pair > single, "a member of a larger group has stream rings");
}

/// For replies, a member registers a cache line for each client, and a client registers a ring for each of the three
/// members. For queries, the member registers the rings, and the client the cache lines.
#[test]
fn memory_for_replies_is_counted_at_both_ends() {
    let bytes = |limits: &str| {
        let config = parse(&GOOD.replacen("clients = 2", limits, 1)).expect("the configuration is valid");
        let memory = config.memory();
        [Some(1), None].map(|size| memory.of(size).expect("the memory has rows for the process").bytes())
    };
    let (without, with) = (bytes("clients = 2\nreply_bytes = 0"), bytes("clients = 2\nreply_ring_kib = 128"));
    let limits = Limits { reply_ring_kib: 128, ..Limits::DEFAULT }.multicast();
    let (replies, queries) = (limits.reply_ring().bytes(), limits.query_ring().bytes());
    assert!(replies > 128 << 10 && queries > 2 * limits.message_bytes as u64);
    assert_eq!([with[0] - without[0], with[1] - without[1]], [2 * (64 + queries), 3 * (64 + replies)]);
    let kept = |limits: &str| {
        let memory = parse(&GOOD.replacen("clients = 2", limits, 1)).expect("the configuration is valid").memory();
        let rows = &memory.of(Some(1)).expect("the memory has rows for the process").rows;
        rows.iter().find(|row| row.what.starts_with("replies that")).expect("the replies have a row").bytes()
    };
    let (one, seven) = (kept("clients = 2\nsessions = 1"), kept("clients = 2\nsessions = 7"));
    assert!(one > 1024 * u64::from(Limits::DEFAULT.reply_bytes) && seven == 7 * one);
}

#[test]
fn multicast_numbers_processes_like_the_table() {
    let config = good();
    let (topology, table) = (config.topology(), config.process_table());
    assert_eq!(topology.processes(), table.entries().len());
    for entry in table.entries() {
        let place = match entry.role {
            Role::Member { group, index } => stentor_multicast::ProcessRole::Member {
                group: stentor_multicast::GroupId(group as u16),
                index: index as u8,
            },
            Role::Client { place } => stentor_multicast::ProcessRole::Client(stentor_multicast::ClientId(place)),
        };
        assert_eq!(topology.role(entry.id), Some(place), "{}", entry.name);
    }
    config.limits().multicast().check().unwrap();
}

proptest! {
    #[test]
    fn rendered_template_is_read_back(
        groups in 1usize..20, replicas in 1usize..8, window in 0u32..=16, clients in 1u16..=1024,
        message_bytes in 1u32..=16 << 20, ring_kib in 16u32..=65_536, body_ring_kib in 16u32..=1_048_576,
        snapshot_mib in 1u32..=1_048_576, backlog_mib in 32u32..=1_048_576, slowed_percent in 1u32..=100,
        expel_ms in 50u32..=600_000, reply_bytes in 0u32..=1 << 20, reply_ring_kib in 1u32..=65_536, sessions in 1u32..=65_536,
        observed_mib in 0u32..=65_536,
    ) {
        let window = 1 << window;
        let rings = Limits { message_bytes, window, clients, ring_kib, body_ring_kib, ..Limits::DEFAULT };
        let limits = Limits { snapshot_mib, backlog_mib, slowed_percent, expel_ms, observed_mib, ..rings };
        let limits = Limits { reply_bytes, reply_ring_kib, sessions, ..limits };
        let text = Template { cluster: "a-b.c_9".into(), groups, replicas, limits, ground: Ground::Shm }.render();
        let config = parse(&text).unwrap();
        prop_assert_eq!(config.limits(), &limits);
        prop_assert_eq!(config.groups().len(), groups);
        prop_assert!(config.groups().iter().all(|group| group.members().len() == replicas));
    }

    #[test]
    fn damaged_file_does_not_panic(at in 0usize..GOOD.len(), bytes in proptest::collection::vec(any::<char>(), 0..4), cut in 0usize..20) {
        let text: String = GOOD[..at].chars().chain(bytes).chain(GOOD[(at + cut).min(GOOD.len())..].chars()).collect();
        if let Err(error) = parse(&text) {
            let place = error.position.unwrap();
            prop_assert!(place.line <= text.matches('\n').count() + 1, "{}", error);
            prop_assert!(!error.remedy().is_empty());
        }
    }
}

#[test]
fn counts_are_checked_before_rendering_with_the_errors_of_the_file() {
    let template = |groups, replicas| Template {
        cluster: "x".into(),
        groups,
        replicas,
        limits: Limits::default(),
        ground: Ground::Shm,
    };
    for (groups, replicas) in [(0, 3), (257, 1), (1, 65), (1, 0)] {
        let error = parse(&template(groups, replicas).render()).unwrap_err();
        assert_eq!(template(groups, replicas).check_counts().unwrap_err().to_string(), error.problem.to_string());
    }
    assert!(template(256, 64).check_counts().is_ok());
    assert!(template(usize::MAX, usize::MAX).check_counts().is_err());
}

#[test]
fn name_with_quotes_is_refused_as_a_name() {
    for cluster in ["a\"b", "a\\", "\"\nkey = \"file:x"] {
        let text = Template {
            cluster: cluster.into(),
            groups: 1,
            replicas: 1,
            limits: Limits::default(),
            ground: Ground::Shm,
        }
        .render();
        let error = parse(&text).unwrap_err();
        let bad = matches!(error.problem, Problem::BadName { .. });
        assert!(bad || cluster.contains('\n'), "{cluster:?}: {error}");
    }
}

#[test]
fn endless_file_is_not_read_to_its_end() {
    let error = ClusterConfig::load(std::path::Path::new("/dev/zero")).unwrap_err();
    assert!(error.to_string().contains("longer than 16777216 bytes"), "{error}");
    assert!(error.remedy().contains("config init"), "{}", error.remedy());
}
