//! A process that is queried or observed by programs that have the key but are no process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use stentor_fabric::{ProcessId, QpId, Status};
use stentor_fabric_net::ask::AskConfig;
use stentor_fabric_net::{ConnectionManager, End, NetConfig, NoSets, Transport};

/// Longer than any operation of these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A transport without queue pairs.
pub(crate) struct NoTransport;

impl Transport for NoTransport {
    fn begin(&mut self, _: QpId) -> Result<End, String> {
        Err("none".into())
    }

    fn meet(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        Err("none".into())
    }

    fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        Err("none".into())
    }

    fn drive(&mut self) {}

    fn fail(&mut self, _: QpId, _: Status) {}

    fn next_broken(&mut self) -> Option<QpId> {
        None
    }
}

pub(crate) type Manager = ConnectionManager<NoSets<NoTransport>>;

/// Starts a process at a unique address. Returns it, and the parameters to query or dial it.
pub(crate) fn start() -> (Manager, AskConfig) {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let ip = Ipv4Addr::new(127, 64 + (std::process::id() % 180) as u8, low, 1 + high);
    let at = SocketAddr::new(ip.into(), 4791);
    let config = NetConfig::new("c", ProcessId(1), vec![None, Some(at)]).key(*b"key").fingerprint(1).one_life();
    let asks = AskConfig { cluster: "c".into(), key: b"key".to_vec(), process: ProcessId(1), at };
    (ConnectionManager::start("test".to_owned(), config, NoSets::default()).unwrap(), asks)
}
