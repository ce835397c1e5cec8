//! A peer that sends a valid hello and then messages that violate the protocol. The error names the peer and the
//! violation, and the endpoint registers no more memory.

use stentor_channel::{
    Cause, ChannelError, Config, Connection, Endpoint, Handle, Kind, Notice, Operation, Scheme, Tag, What,
};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteSpan, Service,
    Source, Span, Verb, WorkRequest,
};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

use crate::bed::small;
use crate::hosted::Meeting;

const HONEST: ProcessId = ProcessId(0);
const LIAR: ProcessId = ProcessId(1);
const MINE: Purpose = Purpose(9);
/// Messages that the liar sends one after the other, each with its tag and its bytes.
type Said<'a> = &'a [(Tag, &'a [u8])];

/// A process that uses the fabric without a channel.
struct Liar<F: Fabric> {
    fabric: F,
    qp: QpId,
    memory: RegionId,
    /// Offset of the last message's bytes. Eight successive messages have different offsets, because earlier sends may
    /// still read their bytes.
    at: u64,
    greeting: (Tag, Vec<u8>),
}

fn config(scheme: Scheme) -> Config {
    small(scheme).channel
}

impl<F: Fabric> Liar<F> {
    fn new(mut fabric: F, scheme: Scheme) -> Self {
        let memory = fabric.register(RegionSpec { purpose: MINE, writer: LIAR, bytes: 4096 }).unwrap();
        // The memory that the peer writes. It is registered as an endpoint would register it.
        let inbox = RegionSpec { purpose: Purpose(4000), writer: HONEST, bytes: small(scheme).memory_bytes() / 2 };
        let inbox = fabric.register(inbox).unwrap();
        fabric.grant(inbox, HONEST, Access::Write).unwrap();
        let qp = fabric.connect(HONEST, Service(40), QpConfig::reliable(64, 64)).unwrap();
        for id in 0..if scheme == Scheme::Counted { 64 } else { 0 } {
            fabric.post_recv(qp, Span { region: inbox, offset: 0, bytes: 0 }, id).unwrap();
        }
        let mut connection = Connection::new(&config(scheme), HONEST, 0, 1);
        while connection.next_recv().is_some() {}
        let greeting = connection.next_send().expect("a greeting");
        let What::Control(words) = greeting.what else { panic!("{greeting:?}") };
        let words = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Liar { fabric, qp, memory, at: 0, greeting: (greeting.tag, words) }
    }

    fn turn(&mut self) -> bool {
        while self.fabric.next_event().is_some() {}
        let _ = self.fabric.poll(&mut [Completion::BLANK; 16]);
        self.fabric.flush();
        self.fabric.state(self.qp) == QpState::Ready
    }

    /// Stores the bytes in registered memory and returns them as a source.
    fn source(&mut self, bytes: &[u8]) -> Source<'static> {
        self.at = (self.at + 512) % 4096;
        for (word, bytes) in self.fabric.memory(self.memory)[self.at as usize / 8..].iter().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
        Source::Region(Span { region: self.memory, offset: self.at, bytes: bytes.len() as u32 })
    }

    fn send(&mut self, tag: Tag, bytes: &[u8]) {
        let verb = Verb::TaggedSend { source: self.source(bytes), tag: tag.bits() };
        self.fabric.post(self.qp, WorkRequest { id: 1, verb, signalled: true }).unwrap();
        self.fabric.flush();
    }

    /// Writes to an offset of the honest end's region. Returns false if the region is not known yet or the queue pair
    /// refuses the WRITE.
    fn write(&mut self, offset: u64, imm: u32, bytes: &[u8]) -> bool {
        let Some(region) = self.fabric.resolve(HONEST, Purpose(4002)) else { return false };
        let (source, target) = (self.source(bytes), RemoteSpan { region, offset });
        let verb = Verb::WriteImm { source, target, imm };
        let posted = self.fabric.post(self.qp, WorkRequest { id: 1, verb, signalled: true });
        self.fabric.flush();
        posted.is_ok()
    }
}

/// The honest end, which only reads.
struct Honest<F: Fabric> {
    endpoint: Endpoint<F>,
    handle: Handle,
    read: Vec<u8>,
    opened: bool,
    failed: Option<ChannelError>,
    closed: bool,
    /// Number of turns since the last turn that did any work.
    quiet: u32,
}

impl<F: Fabric> Honest<F> {
    fn new(fabric: F, scheme: Scheme) -> Self {
        let mut endpoint = Endpoint::new(fabric, small(scheme), &[LIAR]).unwrap();
        let handle = endpoint.open(LIAR, 0).unwrap();
        Honest { endpoint, handle, read: Vec::new(), opened: false, failed: None, closed: false, quiet: 0 }
    }

    fn turn(&mut self) {
        // This end reads only after 200 turns without work. By then, no other event drives the connection.
        let worked = self.endpoint.step() | self.endpoint.housekeep();
        self.quiet = if worked { 0 } else { self.quiet + 1 };
        if self.quiet > 200 {
            self.endpoint.read(self.handle, &mut self.read);
        }
        while let Some((_, notice)) = self.endpoint.next_notice() {
            match notice {
                Notice::Opened => self.opened = true,
                Notice::Written(_) => {}
                Notice::Failed(error) => self.failed = Some(error),
                Notice::Closed => self.closed = true,
            }
        }
    }
}

/// Returns the honest end after the liar has sent these messages, one after the other.
fn honest_end_after(seed: u64, scheme: Scheme, said: Said<'_>) -> Honest<SimFabric> {
    let model = NetworkModel { tagged: true, ..NetworkModel::adversarial() };
    let world = World::new(SimConfig::new(2, seed, model));
    let mut honest = Honest::new(world.fabric(HONEST), scheme);
    let mut liar = Liar::new(world.fabric(LIAR), scheme);
    let before = honest.endpoint.registered_bytes();
    let mut said = said.iter();
    let mut greeted = false;
    for _ in 0..20_000 {
        world.advance(300);
        honest.turn();
        if liar.turn() {
            if !std::mem::replace(&mut greeted, true) {
                let (tag, words) = liar.greeting.clone();
                liar.send(tag, &words);
            } else if honest.opened
                && let Some((tag, bytes)) = said.next()
            {
                liar.send(*tag, bytes);
            }
        }
    }
    assert!(honest.opened && greeted);
    assert_eq!(honest.endpoint.registered_bytes(), before);
    honest
}

fn tag(connection: u32, kind: Kind, sequence: u32) -> Tag {
    Tag { connection, kind, sequence }
}

#[test]
fn messages_with_unknown_tags_are_ignored() {
    let stray = [1; 16];
    for seed in 0..4 {
        let honest = honest_end_after(
            seed,
            Scheme::Eager,
            &[
                (tag(77, Kind::Length, 0), &stray),
                (tag(0, Kind::Payload, 99), &stray),
                (tag(0, Kind::Greeting, 2), &stray),
                (tag(0, Kind::Length, Tag::WHOLE), b"hello"),
            ],
        );
        assert_eq!((honest.failed, honest.read.as_slice()), (None, &b"hello"[..]));
    }
}

#[test]
fn error_names_the_peer_and_its_violation() {
    let length = |bytes: u64| bytes.to_le_bytes();
    let (longest, window) = (config(Scheme::Eager).message_bytes, 5);
    let (long, short, one) = (length(longest + 1), [0; 4], length(300));
    let size = |kind, bytes, expected| Cause::Size { kind, bytes, expected };
    let cases: [(Said<'_>, Operation, Cause); 10] = [
        (
            &[(tag(0, Kind::Length, 0), &long)],
            Operation::Read(0),
            Cause::TooLong { bytes: longest + 1, limit: longest },
        ),
        (&[(tag(0, Kind::Length, 0), &short)], Operation::Read(0), size("length", 4, 8)),
        (&[(tag(0, Kind::Length, 0), &[0; 40])], Operation::Read(0), size("length", 40, 8)),
        (&[(tag(0, Kind::Length, Tag::WHOLE), &[7; 65])], Operation::Read(0), size("whole message", 65, 64)),
        (
            &[(tag(0, Kind::Length, 0), &[0; 8])],
            Operation::Read(0),
            Cause::Nonsense("it sent the length of a message that is sent in place of its length"),
        ),
        (
            &[(tag(0, Kind::Length, 0), &one), (tag(0, Kind::Payload, 0), &[7; 100])],
            Operation::Read(0),
            size("payload", 100, 256),
        ),
        (
            &[(tag(0, Kind::Length, 1000), &one)],
            Operation::Read(0),
            Cause::Sequence { kind: "length", sequence: 1000, expected: 0, window },
        ),
        (&[(tag(0, Kind::Control, 0), &[9; 64])], Operation::Control, Cause::Version { ours: 3, theirs: 9 }),
        (&[(tag(0, Kind::Control, 0), &[2; 8])], Operation::Control, size("control", 8, 64)),
        (&[(tag(0, Kind::Control, 0), &[2; 72])], Operation::Control, size("control", 72, 64)),
    ];
    for (said, operation, cause) in cases {
        let honest = honest_end_after(1, Scheme::Eager, said);
        let error = honest.failed.unwrap_or_else(|| panic!("{said:?} was not detected"));
        assert_eq!((error.connection, error.peer, error.operation, error.cause), (0, LIAR, operation, cause));
    }
}

/// The peer first announces a message of two pieces, so that receives for pieces are posted.
#[test]
fn piece_with_forged_numbers_is_refused() {
    let piece = |sequence| tag(0, Kind::Payload, sequence);
    let message = |message: u32, piece| tag(0, Kind::Payload, Tag::WHOLE | message << Tag::PIECE_BITS | piece);
    let announced = (tag(0, Kind::Length, 0), &300_u64.to_le_bytes()[..]);
    let second = message(1, 2).sequence;
    let cases: [(Tag, &[u8], Cause); 4] = [
        (message(1, 0), &[7; 100], Cause::Nonsense("it sent a message as one piece, but not as the next piece")),
        (
            message(1, 2),
            &[7; 64],
            Cause::Nonsense("it sent a message as one piece that is sent in place of its length"),
        ),
        (
            piece(5 << Tag::PIECE_BITS),
            &[7; 256],
            Cause::Sequence { kind: "payload", sequence: 5 << Tag::PIECE_BITS, expected: 0, window: 3 },
        ),
        (
            message(0, 2),
            &[7; 100],
            Cause::Sequence { kind: "message", sequence: message(0, 2).sequence, expected: second, window: 5 },
        ),
    ];
    for (tag, bytes, cause) in cases {
        let honest = honest_end_after(1, Scheme::Eager, &[announced, (tag, bytes)]);
        let error = honest.failed.unwrap_or_else(|| panic!("{tag} was not detected"));
        assert_eq!((error.connection, error.peer, error.operation, error.cause), (0, LIAR, Operation::Read(0), cause));
    }
}

/// The fabric refuses a message that is longer than its receive.
#[test]
fn message_longer_than_its_receive_fails_the_connection() {
    // Receives for pieces are posted when a message with pieces is announced.
    let announced: Said<'_> =
        &[(tag(0, Kind::Length, 0), &300_u64.to_le_bytes()), (tag(0, Kind::Payload, 0), &[7; 512])];
    for said in [announced, &[(tag(0, Kind::Length, 0), &[7; 512])], &[(tag(0, Kind::Control, 0), &[7; 512])]] {
        let honest = honest_end_after(2, Scheme::Eager, said);
        let error = honest.failed.expect("the connection fails");
        assert!(error.peer == LIAR && matches!(error.cause, Cause::Fabric(_) | Cause::Broken), "{error}");
        assert!(honest.closed, "the connection has drained");
    }
}

/// On fabrics without tags, a peer can write anywhere in the memory to which it has access, any number of times.
#[test]
fn writes_to_slots_that_were_not_granted_fail_the_connection() {
    let meeting = Meeting::new("liar");
    let scheme = Scheme::Counted;
    for imm in [3 << 14 | 1 << 16, 7 << 16, 2, 1 << 14 | 2] {
        let mut honest = Honest::new(meeting.shm(0), scheme);
        let mut liar = Liar::new(meeting.shm(1), scheme);
        let before = honest.endpoint.registered_bytes();
        let greeting_at = small(scheme).memory_bytes() / 2 / 3 - 64;
        let (since, mut greeted, mut written) = (std::time::Instant::now(), false, 0);
        while !honest.closed && written < 10_000 {
            honest.turn();
            if liar.turn() {
                let words = liar.greeting.1.clone();
                if !greeted {
                    greeted = liar.write(greeting_at, 3 << 14, &words);
                } else if honest.opened {
                    written += u32::from(liar.write(0, imm, &[9; 64]));
                }
            }
            assert!(since.elapsed() < std::time::Duration::from_secs(60), "{imm:#x}: {written} written");
        }
        // A hello for a connection number that is not open is kept for later. The other messages, repeated, end the
        // connection or the queue pair.
        let early = imm == 3 << 14 | 1 << 16;
        assert_eq!(honest.failed.is_none(), early, "{imm:#x}: {:?}", honest.failed);
        if let Some(error) = honest.failed {
            assert!(error.peer == LIAR && error.connection == 0, "{error}");
            assert!(!matches!(error.cause, Cause::Aborted | Cause::TimedOut(_)), "{error}");
        }
        assert_eq!(honest.endpoint.registered_bytes(), before);
    }
}
