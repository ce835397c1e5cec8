//! Two endpoints of one provider in one process, driven alternately.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_fabric::Access;
use stentor_fabric::memory::Ordering;
use stentor_fabric_ofi::{
    Domain, Endpoint, Errno, Failure, Libfabric, Local, Needs, PageMemory, PeerAddress, Polled, Quirks, Registration,
    Remote, Scratch, Success, Wish, choose,
};

/// Providers in Debian's libfabric that work between processes of one host.
pub(crate) const PROVIDERS: [&str; 4] = ["tcp;ofi_rxm", "shm", "udp;ofi_rxd", "sockets"];

/// Maximum duration of any single step.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn wish(provider: &str) -> Wish {
    let address = Some("127.0.0.1".parse().unwrap());
    Wish { provider: Some(provider.to_owned()), address, device: None, turn: 0, same_host: true }
}

pub(crate) fn open(provider: &str, needs: Needs) -> Arc<Domain> {
    let library = Libfabric::load().expect("libfabric loads; otherwise: apt-get install libfabric1");
    let info = choose(library, &wish(provider), needs).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(info.provider(), provider);
    Domain::open(library, info).unwrap_or_else(|error| panic!("{error}"))
}

/// One endpoint with its registered memory.
pub(crate) struct Side {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) memory: Registration,
    scratch: Vec<Scratch>,
    /// Completions, each with the index of the operation's scratch, or `None` for a peer's write with an immediate.
    pub(crate) done: Vec<(Option<usize>, Result<Success, Failure>)>,
}

pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    pub(crate) peers: [PeerAddress; 2],
}

pub(crate) const BYTES: usize = 1 << 16;

impl Pair {
    pub(crate) fn new(provider: &str, needs: Needs) -> Pair {
        eprintln!("on {provider}");
        let domain = open(provider, needs);
        let side = |key| {
            let endpoint = Arc::new(Endpoint::new(&domain, 1024, true).unwrap_or_else(|error| panic!("{error}")));
            let memory = PageMemory::zeroed(BYTES).unwrap();
            let peers = needs.rma.then_some(Access::Atomic);
            let memory = Registration::new(&domain, &memory, peers, key, Some(&endpoint));
            let memory = memory.unwrap_or_else(|error| panic!("{error}"));
            Side { endpoint, memory, scratch: (0..64).map(|_| Scratch::default()).collect(), done: Vec::new() }
        };
        let sides = [side(0x1234_5678_9abc), side(77)];
        let know = |n: usize| {
            let address = sides[1 - n].endpoint.address().unwrap();
            sides[n].endpoint.know(&address).unwrap()
        };
        let peers = [know(0), know(1)];
        Pair { sides, peers }
    }

    pub(crate) fn local(&self, side: usize, offset: u64, bytes: usize) -> Local {
        let memory = &self.sides[side].memory;
        Local { start: memory.memory().at(offset), bytes, descriptor: memory.descriptor() }
    }

    /// Returns a location in the other side's memory.
    pub(crate) fn remote(&self, side: usize, offset: u64) -> Remote {
        let memory = &self.sides[1 - side].memory;
        Remote { peer: self.peers[side], address: memory.base() + offset, key: memory.key() }
    }

    pub(crate) fn context(&mut self, side: usize, number: usize) -> *mut c_void {
        ptr::from_mut(&mut self.sides[side].scratch[number]).cast()
    }

    pub(crate) fn word(&self, side: usize, word: usize) -> u64 {
        self.sides[side].memory.memory().words()[word].load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, side: usize, word: usize, value: u64) {
        self.sides[side].memory.memory().words()[word].store(value, Ordering::Release);
    }

    /// Posts an operation. Drives both endpoints while the queue is full.
    pub(crate) fn post(&mut self, mut post: impl FnMut(&Pair) -> Result<(), Errno>) {
        let start = Instant::now();
        loop {
            match post(self) {
                Ok(()) => return,
                Err(Errno::AGAIN) => {}
                Err(error) => panic!("{error}"),
            }
            assert!(start.elapsed() < PATIENCE, "no room");
            self.progress();
        }
    }

    pub(crate) fn progress(&mut self) {
        for side in &mut self.sides {
            let base = side.scratch.as_ptr().addr();
            let number =
                |context: *mut c_void| (!context.is_null()).then(|| (context.addr() - base) / size_of::<Scratch>());
            let done = &mut side.done;
            match side.endpoint.queue().poll(|entry| done.push((number(entry.context), Ok(entry)))) {
                Polled::Entries(_) => {}
                Polled::Failed(failure) => side.done.push((number(failure.context), Err(failure))),
                Polled::Nothing => {}
            }
        }
    }

    /// Waits for the completion of an operation.
    pub(crate) fn completion(&mut self, side: usize, number: Option<usize>) -> Result<Success, Failure> {
        let start = Instant::now();
        loop {
            if let Some(at) = self.sides[side].done.iter().position(|(of, _)| *of == number) {
                return self.sides[side].done.remove(at).1;
            }
            assert!(start.elapsed() < PATIENCE, "operation {number:?} of side {side} did not complete");
            self.progress();
        }
    }

    /// Drives both endpoints for 50 ms.
    pub(crate) fn linger(&mut self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            self.progress();
        }
    }

    pub(crate) fn quirks(&self) -> Quirks {
        Quirks::of(self.sides[0].endpoint.domain().info())
    }

    pub(crate) fn completes(&mut self, side: usize, number: usize) -> Success {
        self.completion(side, Some(number)).unwrap_or_else(|failure| panic!("{failure}"))
    }
}
