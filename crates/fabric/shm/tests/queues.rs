//! A process connects to itself while it has no file descriptor left. The limit applies to the whole process, so this
//! file has only one test.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stentor_fabric::{ConnectError, Event, Fabric, OsError, ProcessId, QpConfig, QpState, Service};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

const ME: ProcessId = ProcessId(0);
const QP: QpConfig = QpConfig::reliable(8, 8);

/// Sets the limit of open files and returns the former one. Descriptors that are open stay open.
fn allow_files(current: Option<u64>) -> Option<u64> {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
    before.current
}

#[test]
fn a_queue_pair_without_memory_for_its_queue_is_an_error_and_never_waits() {
    let directory = std::env::temp_dir().join(format!("stentor-shm-queues-{}", std::process::id()));
    let config = ShmConfig { directory: directory.clone(), ..ShmConfig::new("queues", ME, "g1.0", 2) };
    let mut fabric = ShmFabric::start(config).unwrap();
    let refused = |result: Result<(), ConnectError>| match result {
        Err(ConnectError::System { peer: ME, reason }) => {
            assert!(reason.starts_with("no memory for a queue can be allocated: "), "{reason}");
            assert!(reason.contains(&OsError(24).with_remedy()), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    let files = allow_files(Some(0));
    refused(fabric.connect(ME, Service(1), QP).map(|_| ()));
    allow_files(files);
    let qp = fabric.connect(ME, Service(1), QP).expect("the failed call has left nothing behind");
    assert_eq!(fabric.next_event(), Some(Event::Connected { qp, peer: ME }));
    fabric.disconnect(qp).unwrap();
    assert_eq!(fabric.next_event(), Some(Event::Disconnected { qp, peer: ME }));
    allow_files(Some(0));
    refused(fabric.reset(qp));
    assert_eq!(fabric.state(qp), QpState::Error, "it can be reset again");
    allow_files(files);
    fabric.reset(qp).unwrap();
    assert_eq!((fabric.next_event(), fabric.state(qp)), (Some(Event::Connected { qp, peer: ME }), QpState::Ready));
    drop(fabric);
    let _ = std::fs::remove_dir_all(&directory);
}
