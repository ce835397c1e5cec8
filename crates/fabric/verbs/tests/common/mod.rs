//! The device under test, and two queue pairs on it in one process. `cargo xtask test --only verbs` creates a guest
//! with such a device.

#![allow(dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, Opcode, QpKind};
use stentor_fabric_verbs::device::{self, Choice, Wanted};
use stentor_fabric_verbs::qp::{Endpoint, Local, Own, QueuePair, Remote, Size, State, Tuning, Work};
use stentor_fabric_verbs::{
    CompletionQueue, Context, Domain, Mtu, PortNumber, Region, Verbs, WorkCompletion, WorkStatus,
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Address that the guest assigns to the interface under Soft-RoCE.
const ADDRESS: &str = "10.0.0.1";
pub(crate) const BYTES: usize = 64 << 10;
/// Requested length of inline data, in bytes. It is more than any device grants.
pub(crate) const INLINE_WANTED: u32 = 1 << 20;

/// An open device.
pub(crate) struct Host {
    pub(crate) context: Arc<Context>,
    pub(crate) choice: Choice,
    pub(crate) own: Own,
    pub(crate) mtu: Mtu,
}

pub(crate) fn host() -> Host {
    let verbs = Verbs::load().expect("libibverbs");
    let wanted = Wanted { address: Some(ADDRESS.parse().unwrap()), ..Wanted::default() };
    let choice = device::choose(&device::devices(device::ROOT.as_ref()), &wanted).expect("a device");
    let context = Context::open(verbs, &choice.device).expect("the device opens");
    let own = Own { port: PortNumber(choice.port), gid_index: u8::try_from(choice.gid.index).unwrap() };
    let mtu = context.port(own.port).unwrap().mtu.expect("an MTU");
    Host { context, choice, own, mtu }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) queue: Arc<CompletionQueue>,
    pub(crate) memory: Region,
}

impl End {
    pub(crate) fn new(host: &Host, kind: QpKind) -> End {
        let domain = Domain::new(&host.context).unwrap();
        let queue = CompletionQueue::new(&host.context, 64).unwrap();
        let memory = Region::register(&domain, BYTES, Some(Access::Atomic)).unwrap();
        let size = Size { kind, send_depth: 16, recv_depth: 16, inline_bytes: INLINE_WANTED };
        End { qp: QueuePair::new(&domain, &queue, &queue, size).unwrap(), queue, memory }
    }

    pub(crate) fn endpoint(&self, host: &Host, psn: u32) -> Endpoint {
        Endpoint { qp_number: self.qp.number(), psn, gid: host.choice.gid.bytes, lid: 0, mtu: host.mtu }
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { address: self.memory.address() + offset, key: self.memory.remote_key() }
    }

    pub(crate) fn local(&self, offset: u64, bytes: u32) -> Local<'_> {
        Local { region: &self.memory, offset, bytes }
    }

    pub(crate) fn word(&self, offset: usize) -> u64 {
        self.memory.words()[offset / 8].load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, offset: usize, value: u64) {
        self.memory.words()[offset / 8].store(value, Ordering::Release);
    }

    pub(crate) fn completion(&self) -> WorkCompletion {
        let until = Instant::now() + PATIENCE;
        let mut out = [WorkCompletion {
            id: 0,
            qp_number: 0,
            status: WorkStatus::SUCCESS,
            vendor_error: 0,
            opcode: None,
            bytes: 0,
            imm: None,
        }];
        while self.queue.poll(&mut out).unwrap() == 0 {
            assert!(Instant::now() < until, "no request completes");
            std::thread::yield_now();
        }
        out[0]
    }

    /// Posts an operation and waits until it succeeds.
    pub(crate) fn run(&self, work: Work<'_>, opcode: Opcode) {
        self.qp.post(7, &work, true).unwrap();
        let done = self.completion();
        assert_eq!((done.id, done.status, done.opcode), (7, WorkStatus::SUCCESS, Some(opcode)));
    }
}

/// Returns two connected ends.
pub(crate) fn pair(host: &Host, kind: QpKind) -> [End; 2] {
    let ends = [End::new(host, kind), End::new(host, kind)];
    // The first end's packet sequence numbers begin shortly before they wrap.
    let endpoints = [ends[0].endpoint(host, 0xff_fffe), ends[1].endpoint(host, 5)];
    let tuning = Tuning::default();
    for end in &ends {
        end.qp.init(host.own.port, Some(Access::Atomic)).unwrap();
        assert_eq!(end.qp.state(), Ok(State::Init));
    }
    for (end, peer) in [(&ends[0], &endpoints[1]), (&ends[1], &endpoints[0])] {
        end.qp.ready_to_receive(host.own, peer, &tuning).unwrap();
    }
    for (end, own) in ends.iter().zip(&endpoints) {
        end.qp.ready_to_send(host.own, own.psn, &tuning).unwrap();
        assert_eq!(end.qp.state(), Ok(State::Rts));
    }
    ends
}
