//! Counts the instructions of a post to the shared-memory fabric, and of a poll of that fabric.

use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, ProcessId, Purpose, QpConfig, QpId, RegionSpec, RemoteSpan, Service,
    Source, Status, Verb, WorkRequest,
};
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_testutil::TempDir;

use crate::{WARM_UP, counted_if};

/// The operation whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A signalled inline WRITE of 64 bytes and its doorbell.
    Post,
    /// A poll that returns one completion.
    Poll,
    /// A poll that finds nothing.
    PollNothing,
}

const PURPOSE: Purpose = Purpose(1);
const REGION_BYTES: u64 = 4096;
const QP: QpId = QpId(0);
const NONE: Completion =
    Completion { qp: QpId(0), id: 0, opcode: Opcode::Write, status: Status::Success, bytes: 0, imm: None, tag: 0 };

/// Two connected processes, of which the first writes.
#[derive(Debug)]
pub struct Pair {
    writer: ShmFabric,
    _reader: ShmFabric,
    target: RemoteSpan,
    _directory: TempDir,
}

impl Pair {
    /// Connects two processes and posts the warm-up messages.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn ready() -> Self {
        let directory = TempDir::new();
        let start = |me: u16| {
            let config = ShmConfig::new("instructions", ProcessId(me), &format!("p{me}"), 2);
            let config = ShmConfig { directory: directory.to_path_buf(), janitor: false, ..config };
            let mut fabric = ShmFabric::start(config).expect("the fabric starts");
            let peer = ProcessId(1 - me);
            let region = fabric.register(RegionSpec { purpose: PURPOSE, writer: peer, bytes: REGION_BYTES });
            fabric.grant(region.expect("memory for the region is available"), peer, Access::Write).expect("a peer");
            fabric.connect(peer, Service(0), QpConfig::reliable(32, 16)).expect("a queue pair");
            fabric
        };
        let (mut writer, mut reader) = (start(0), start(1));
        let mut connected = 0;
        while connected < 2 {
            for fabric in [&mut writer, &mut reader] {
                connected += usize::from(matches!(fabric.next_event(), Some(Event::Connected { .. })));
            }
        }
        let region = writer.resolve(ProcessId(1), PURPOSE).expect("granted before it connected");
        let target = RemoteSpan { region, offset: 128 };
        let mut pair = Pair { writer, _reader: reader, target, _directory: directory };
        pair.pass(None, WARM_UP);
        pair
    }

    /// Posts and polls `messages`, and counts the instructions of `role`.
    ///
    /// # Panics
    /// Panics if a post or a completion fails.
    pub fn run(&mut self, role: Role, messages: u64) {
        self.pass(Some(role), messages);
    }

    fn pass(&mut self, role: Option<Role>, messages: u64) {
        let mut out = [NONE; 16];
        for id in 0..messages {
            let verb = Verb::Write { source: Source::Inline(&[7; 64]), target: self.target };
            counted_if(role == Some(Role::Post), || {
                self.writer.post(QP, WorkRequest { id, verb, signalled: true }).expect("the send queue has room");
                self.writer.flush();
            });
            let polled = counted_if(role == Some(Role::Poll), || self.writer.poll(&mut out));
            assert_eq!((polled, out[0].id, out[0].status), (1, id, Status::Success));
            assert_eq!(counted_if(role == Some(Role::PollNothing), || self.writer.poll(&mut out)), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_polled_for_every_post() {
        let mut pair = Pair::ready();
        for role in [Role::Post, Role::Poll, Role::PollNothing] {
            pair.run(role, 10);
        }
    }
}
