//! The hot path of a channel message on shared memory. One message is outstanding at a time.

use stentor::runtime::ShmFabric;
use stentor_channel::{Config, Endpoint, EndpointConfig, Handle, Notice, Scheme};
use stentor_fabric::ProcessId;
use stentor_fabric_shm::ShmConfig;
use stentor_testutil::TempDir;

use crate::{WARM_UP, counted_if};

/// One of the two ends of the connection: the end whose calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The end that writes. Its calls of `begin` and `hand_over` and its steps are counted.
    Writer,
    /// The end that reads. Its steps and its reads are counted.
    Reader,
}

const MESSAGE: [u8; 64] = [7; 64];
/// Size of the largest message of the fabric, in bytes.
const FABRIC_BYTES: u32 = 256 << 10;
/// Maximum number of rounds until a message is read and reported as written.
const MOST_ROUNDS: u32 = 100;

/// Both ends of a connection in one thread. The first one writes.
pub struct Ends {
    ends: [(Endpoint<ShmFabric>, Handle); 2],
    reading: Vec<u8>,
    _directory: TempDir,
}

impl Ends {
    /// Opens a connection and sends the warm-up messages.
    ///
    /// # Panics
    /// Panics if shared memory is not available on this machine.
    #[must_use]
    pub fn ready() -> Self {
        let directory = TempDir::new();
        let config = EndpointConfig { connections: 1, ..EndpointConfig::new(Config::with(Scheme::Counted)) };
        let end = |me: u16| {
            let shm = ShmConfig {
                directory: directory.to_path_buf(),
                max_bytes: 1 << 30,
                message_bytes: FABRIC_BYTES,
                janitor: false,
                ..ShmConfig::new("instructions", ProcessId(me), &format!("p{me}"), 2)
            };
            let peer = ProcessId(1 - me);
            let fabric = ShmFabric::start(shm).expect("the fabric starts");
            let mut endpoint = Endpoint::new(fabric, config, &[peer]).expect("the parameters are possible");
            let handle = endpoint.open(peer, 0).expect("a free number");
            (endpoint, handle)
        };
        let mut ends = Ends { ends: [end(0), end(1)], reading: Vec::new(), _directory: directory };
        let mut opened = 0;
        while opened < 2 {
            for (endpoint, _) in &mut ends.ends {
                endpoint.housekeep();
                endpoint.step();
                opened += usize::from(matches!(endpoint.next_notice(), Some((_, Notice::Opened))));
            }
        }
        ends.pass(None, WARM_UP);
        ends
    }

    /// Sends `messages`, one after the other. Counts the instructions of `role` until each message is read and reported
    /// as written.
    ///
    /// # Panics
    /// Panics if a message does not arrive.
    pub fn run(&mut self, role: Role, messages: u64) {
        self.pass(Some(role), messages);
    }

    fn pass(&mut self, role: Option<Role>, messages: u64) {
        for _ in 0..messages {
            let [(writer, handle), (reader, from)] = &mut self.ends;
            let handed_over = counted_if(role == Some(Role::Writer), || {
                writer.begin(*handle, MESSAGE.len() as u64).expect("a connection");
                writer.hand_over(*handle, &MESSAGE)
            });
            assert!(handed_over.is_ok_and(|handed_over| handed_over), "one message fits");
            let (mut written, mut read, mut rounds) = (false, false, 0);
            while !(written && read) {
                written |= counted_if(role == Some(Role::Writer), || {
                    writer.step();
                    matches!(writer.next_notice(), Some((_, Notice::Written(_))))
                });
                read |= counted_if(role == Some(Role::Reader), || {
                    reader.step();
                    self.reading.clear();
                    reader.read(*from, &mut self.reading)
                });
                rounds += 1;
                assert!(rounds < MOST_ROUNDS, "a message does not arrive");
            }
            assert_eq!(reader.next_notice(), None, "this end writes nothing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_read() {
        let mut ends = Ends::ready();
        for role in [Role::Writer, Role::Reader] {
            ends.run(role, 10);
        }
    }
}
