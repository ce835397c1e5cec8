//! Admission of peers, and the contents of a process's directory.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use stentor_fabric::{ConnectError, Fabric, ProcessId, QpConfig};

use super::support::*;
use stentor_host::StandingSeat;

use crate::{ShmConfig, ShmFabric, StartError};

const QP: QpConfig = QpConfig::reliable(4, 0);

/// Starts two processes that must not connect. Returns the refusal of each.
fn refusals(change: impl Fn(&mut ShmConfig)) -> [String; 2] {
    let directory = TestDirectory::new();
    let mut theirs = config(&directory.0, 1, 2);
    change(&mut theirs);
    let mut fabrics = [ShmFabric::start(config(&directory.0, 0, 2)).unwrap(), ShmFabric::start(theirs).unwrap()];
    fabrics[0].connect(ProcessId(1), SERVICE, QP).unwrap();
    fabrics[1].connect(ProcessId(0), SERVICE, QP).unwrap();
    let mut reasons = [None, None];
    until("refused at both ends", || {
        for (fabric, reason) in fabrics.iter_mut().zip(&mut reasons) {
            assert_eq!(events(fabric), []);
            *reason = reason.take().or_else(|| fabric.next_refusal());
        }
        reasons.iter().all(Option::is_some)
    });
    let again = fabrics[1].connect(ProcessId(0), stentor_fabric::Service(1), QP);
    assert!(matches!(again, Err(ConnectError::Refused { peer: ProcessId(0), .. })), "{again:?}");
    reasons.map(|reason| reason.unwrap().reason)
}

#[test]
fn a_peer_of_another_version_or_configuration_is_refused_with_both_named() {
    let version: fn(&mut ShmConfig) = |config| config.version = 9;
    let fingerprint: fn(&mut ShmConfig) = |config| config.fingerprint = 0xbad;
    let processes: fn(&mut ShmConfig) = |config| config.processes = 5;
    for (change, what) in [(version, "version"), (fingerprint, "cluster.toml"), (processes, "5 processes")] {
        for reason in refusals(change) {
            for part in ["g1.0 of cluster", "g1.1 of cluster", "pid", what] {
                assert!(reason.contains(part), "{part} in: {reason}");
            }
        }
    }
}

#[test]
fn a_second_process_with_the_same_id_is_refused_and_the_first_stays() {
    let mut pair = Pair::new(QP);
    let error = ShmFabric::start(config(&pair.directory.0, 1, 3)).unwrap_err();
    let pid = std::process::id();
    assert_eq!(
        error.to_string(),
        format!("g1.1 (p1) of cluster test is running already, as pid {pid}; stop it or use another id")
    );
    pair.write(1, 0, &[1], true);
    assert_eq!(poll(&mut pair.a).len(), 1);
    assert_eq!((events(&mut pair.b), pair.b.next_refusal()), (vec![], None));
}

#[test]
fn socket_of_unknown_state_stays_and_the_start_is_refused() {
    let directory = TestDirectory::new();
    let _other = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    // Connecting to this socket fails, although a process listens. The same happens when this process has no file
    // descriptor left.
    let path = directory.0.join("test").join("1-g1.1.1.00000000.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = ShmFabric::start(config(&directory.0, 1, 2)).unwrap_err();
    assert!(matches!(error, StartError::System { .. }), "{error}");
    assert!(error.to_string().contains("1-g1.1.1.00000000.sock"), "{error}");
    assert!(path.exists());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn id_of_an_ended_process_is_free_and_its_stale_socket_is_removed() {
    let directory = TestDirectory::new();
    let without = ShmConfig { janitor: false, ..config(&directory.0, 1, 2) };
    drop(ShmFabric::start(without.clone()).unwrap());
    let fabric = ShmFabric::start(without.clone()).unwrap();
    let cluster = directory.0.join("test");
    let socket = stentor_host::sockets_of(&cluster, ProcessId(1)).unwrap().remove(0);
    // A socket without a listener, as kill -9 leaves it when there is no janitor.
    let left = cluster.join("1-g1.1.1.00000000.sock");
    std::fs::hard_link(&socket, cluster.join("keep")).unwrap();
    drop(fabric);
    std::fs::rename(cluster.join("keep"), &left).unwrap();
    let fabric = ShmFabric::start(without).unwrap();
    assert!(!left.exists());
    drop(fabric);
    assert!(!directory.0.exists());
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let directory = TestDirectory::new();
    std::fs::create_dir(&directory.0).unwrap();
    let open = |mode| std::fs::set_permissions(&directory.0, std::fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o755, 0o710, 0o701, 0o1777] {
        open(mode);
        let error = ShmFabric::start(config(&directory.0, 0, 2)).unwrap_err().to_string();
        assert!(error.contains("chmod 700") && error.contains(&format!("{mode:04o}")), "{error}");
    }
    open(0o700);
    let (real, link) = (directory.0.join("real"), directory.0.join("link"));
    std::fs::create_dir(&real).unwrap();
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&real, &link).unwrap();
    let error = ShmFabric::start(config(&link, 0, 2)).unwrap_err();
    assert!(matches!(&error, StartError::Directory { path, .. } if *path == link), "{error}");
    let error = ShmFabric::start(config(&directory.0.join("missing/parent"), 0, 2)).unwrap_err();
    assert!(matches!(error, StartError::Directory { .. }), "{error}");
    let fabric = ShmFabric::start(config(&real, 0, 2)).unwrap();
    let socket = stentor_host::sockets_of(&real.join("test"), ProcessId(0)).unwrap().remove(0);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&socket), mode(&real.join("test"))), (0o600, 0o700));
    drop(fabric);
}

#[test]
fn bad_names_ids_and_limits_are_refused() {
    let directory = TestDirectory::new();
    let with = |change: &dyn Fn(&mut ShmConfig)| {
        let mut changed = config(&directory.0, 0, 2);
        change(&mut changed);
        ShmFabric::start(changed).unwrap_err()
    };
    for name in ["", "a/b", "..", "ü", &"x".repeat(65)] {
        assert!(matches!(with(&|config| config.cluster = name.to_owned()), StartError::Name { .. }), "{name}");
        assert!(matches!(with(&|config| config.name = name.to_owned()), StartError::Name { .. }), "{name}");
    }
    assert!(matches!(with(&|config| config.me = ProcessId(2)), StartError::UnknownProcess { .. }));
    assert!(matches!(with(&|config| config.message_bytes = 0), StartError::Limits { .. }));
    let long = with(&|config| config.cluster = "x".repeat(64));
    assert!(matches!(long, StartError::PathTooLong { .. }), "{long}");
    assert!(!directory.0.join("test").exists());
}

#[test]
fn many_processes_start_at_once_and_leave_at_once() {
    let directory = TestDirectory::new();
    for _ in 0..10 {
        std::thread::scope(|scope| {
            for me in 0..6 {
                let config = ShmConfig { janitor: me % 2 == 0, ..config(&directory.0, me, 6) };
                scope.spawn(move || drop(ShmFabric::start(config).unwrap()));
            }
        });
        assert!(!directory.0.exists());
    }
}

#[test]
fn peers_connect_in_any_order_and_reconnect() {
    let directory = TestDirectory::new();
    let mut a = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    let qp = a.connect(ProcessId(1), SERVICE, QP).unwrap();
    for _ in 0..3 {
        let mut b = ShmFabric::start(config(&directory.0, 1, 2)).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(events(&mut b), [], "no queue pair there yet");
        let qp_b = b.connect(ProcessId(0), SERVICE, QP).unwrap();
        until("ready", || {
            events(&mut a);
            events(&mut b);
            let ready = stentor_fabric::QpState::Ready;
            (a.state(qp), b.state(qp_b)) == (ready, ready)
        });
        assert_eq!(a.peer_pid(ProcessId(1)), Some(std::process::id() as i32));
        drop(b);
        until("gone", || events(&mut a).len() == 1);
        a.reset(qp).unwrap();
    }
}

#[test]
fn removed_socket_is_recreated_reported_and_found() {
    let directory = TestDirectory::new();
    let mut a = ShmFabric::start(config(&directory.0, 0, 2)).unwrap();
    a.connect(ProcessId(1), SERVICE, QP).unwrap();
    let beside = a.beside();
    std::fs::remove_dir_all(&directory.0).unwrap();
    // The directory shows no trace of the process, but a second one with its id is still refused.
    let error = ShmFabric::start(config(&directory.0, 0, 2)).unwrap_err();
    assert!(matches!(error, StartError::AlreadyRunning { pid, .. } if pid == std::process::id() as i32), "{error}");
    let mut note = None;
    until("made anew", || {
        events(&mut a);
        note = note.take().or_else(|| a.next_note());
        note.is_some()
    });
    let note = note.unwrap();
    assert!(note.contains("was removed") && note.contains("made anew") && note.contains(".sock"), "{note}");
    assert_eq!(beside.path(), a.beside().path());
    let mut b = ShmFabric::start(config(&directory.0, 1, 2)).unwrap();
    let qp = b.connect(ProcessId(0), SERVICE, QP).unwrap();
    until("connected", || {
        events(&mut a);
        events(&mut b);
        b.state(qp) == stentor_fabric::QpState::Ready
    });
    drop((a, b));
    assert!(!directory.0.exists(), "nothing is left behind");
}

#[test]
fn removed_seat_is_recreated_and_reported() {
    let directory = TestDirectory::new();
    let (sender, said) = std::sync::mpsc::channel();
    let say = move |text: &str| sender.send(text.to_owned()).unwrap();
    let place = StandingSeat::take(directory.0.clone(), "test", ProcessId(3), "g1.3", None, say).unwrap();
    std::fs::remove_dir_all(directory.0.join("test")).unwrap();
    let second = StandingSeat::take(directory.0.clone(), "test", ProcessId(3), "g1.3", None, |_| {});
    assert!(matches!(second, Err(StartError::AlreadyRunning { .. })), "{second:?}");
    assert!(said.recv_timeout(PATIENCE).unwrap().contains("made anew"));
    assert_eq!(stentor_host::sockets_of(&directory.0.join("test"), ProcessId(3)).unwrap().len(), 1);
    drop(place);
    assert!(!directory.0.exists());
}

#[test]
fn relative_directory_is_the_same_as_its_absolute_path() {
    let directory = TestDirectory::new();
    let up: std::path::PathBuf = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect();
    let relative = up.join(directory.0.strip_prefix("/").unwrap());
    let fabric = ShmFabric::start(ShmConfig { directory: relative, ..config(&directory.0, 0, 2) }).unwrap();
    assert!(fabric.beside().path().is_absolute());
    let error = ShmFabric::start(config(&directory.0, 0, 2)).unwrap_err();
    assert!(matches!(error, StartError::AlreadyRunning { .. }), "{error}");
}

#[test]
fn directory_with_dots_has_the_path_without_them() {
    let directory = TestDirectory::new();
    // The path of a socket through this directory would be too long for its name.
    let long = directory.0.join("x".repeat(100));
    std::fs::create_dir_all(&long).unwrap();
    let asked = long.join("..").join("here");
    let fabric = ShmFabric::start(ShmConfig { directory: asked, ..config(&directory.0, 0, 2) }).unwrap();
    assert!(fabric.beside().path().starts_with(directory.0.canonicalize().unwrap().join("here")));
    drop(fabric);
    std::fs::remove_dir_all(&directory.0).unwrap();
}

#[test]
fn restarted_process_is_refused_under_one_life_despite_its_equal_pid() {
    let directory = TestDirectory::new();
    let mut a = ShmFabric::start(ShmConfig { one_life: true, ..config(&directory.0, 0, 2) }).unwrap();
    a.connect(ProcessId(1), SERVICE, QP).unwrap();
    let live = |a: &mut ShmFabric| {
        let mut b = ShmFabric::start(config(&directory.0, 1, 2)).unwrap();
        let qp = b.connect(ProcessId(0), SERVICE, QP).unwrap();
        let mut refusal = None;
        until("connected or refused", || {
            events(a);
            events(&mut b);
            refusal = refusal.take().or_else(|| b.next_refusal());
            refusal.is_some() || b.state(qp) == stentor_fabric::QpState::Ready
        });
        refusal
    };
    assert_eq!(live(&mut a), None);
    until("gone", || {
        events(&mut a);
        a.peer_pid(ProcessId(1)).is_none()
    });
    let refusal = live(&mut a).expect("a process that has met the peer before is refused");
    assert!(refusal.reason.contains("started again"), "{refusal:?}");
}
