//! A process that writes and reads on several connections, on any fabric.

use std::collections::VecDeque;

use stentor_channel::{CONTROLS, ChannelError, Config, Endpoint, EndpointConfig, Handle, Notice, Scheme};
use stentor_fabric::{Fabric, ProcessId};

pub(crate) const OTHER: [ProcessId; 2] = [ProcessId(1), ProcessId(0)];

pub(crate) fn small(scheme: Scheme) -> EndpointConfig {
    let channel = Config {
        message_bytes: 4096,
        lengths: 4,
        pieces: 3,
        piece_bytes: 256,
        eager_bytes: 64,
        ..Config::with(scheme)
    }
    .normal();
    EndpointConfig { connections: 3, ..EndpointConfig::new(channel) }
}

/// Returns the number of receives that one process posts for one peer. Each receive occupies an entry of the completion
/// queue.
pub(crate) fn receives(config: &EndpointConfig) -> u32 {
    (config.channel.lengths + config.channel.pieces + CONTROLS + 1) * u32::from(config.connections)
}

/// Returns the bytes of a message.
pub(crate) fn message(from: ProcessId, connection: u32, number: u64, bytes: usize) -> Vec<u8> {
    let seed = u64::from(from.0) * 7919 + u64::from(connection) * 104_729 + number * 1_299_709;
    (0..bytes as u64).map(|at| ((seed + at * 31) >> 3) as u8).collect()
}

/// The application's state of one connection: the messages that it has yet to write and expects to read.
pub(crate) struct Talk {
    pub(crate) handle: Handle,
    number: u32,
    to_write: VecDeque<Vec<u8>>,
    pub(crate) written: u64,
    expected: VecDeque<Vec<u8>>,
    pub(crate) read: u64,
    reading: Vec<u8>,
    finished: bool,
    pub(crate) closed: bool,
    pub(crate) failed: Option<ChannelError>,
}

pub(crate) struct Process<F: Fabric> {
    pub(crate) endpoint: Endpoint<F>,
    pub(crate) talks: Vec<Talk>,
}

impl<F: Fabric> Process<F> {
    pub(crate) fn new(fabric: F, config: EndpointConfig, lengths: &[usize]) -> Self {
        let me = fabric.me();
        let peer = OTHER[me.index()];
        let mut endpoint = Endpoint::new(fabric, config, &[peer]).expect("the parameters are possible");
        let mut talks = Vec::new();
        for number in 0..u32::from(config.connections) {
            let handle = endpoint.open(peer, number).expect("the number is free");
            let all = |from| lengths.iter().zip(0..).map(|(bytes, n)| message(from, number, n, *bytes)).collect();
            talks.push(Talk {
                handle,
                number,
                to_write: all(me),
                written: 0,
                expected: all(peer),
                read: 0,
                reading: Vec::new(),
                finished: false,
                closed: false,
                failed: None,
            });
        }
        Process { endpoint, talks }
    }

    /// Runs one round. Returns whether anything was done.
    pub(crate) fn step(&mut self) -> bool {
        let mut worked = self.endpoint.housekeep();
        worked |= self.endpoint.step();
        for talk in &mut self.talks {
            worked |= talk.step(&mut self.endpoint);
        }
        while let Some((handle, notice)) = self.endpoint.next_notice() {
            worked = true;
            let talk = self.talks.iter_mut().find(|talk| talk.handle == handle).expect("one of this process");
            match notice {
                Notice::Opened => {}
                Notice::Written(number) => {
                    assert_eq!(number, talk.written, "connection {}", talk.number);
                    talk.written += 1;
                }
                Notice::Failed(error) => talk.failed = Some(error),
                Notice::Closed => talk.closed = true,
            }
        }
        worked
    }

    pub(crate) fn is_done(&self) -> bool {
        self.talks.iter().all(|talk| talk.closed)
    }

    /// Checks that all messages were written and read, and that no connection failed.
    pub(crate) fn assert_ok(&self) {
        for talk in &self.talks {
            assert_eq!((talk.failed, talk.expected.len(), talk.to_write.len()), (None, 0, 0));
            assert!(!self.endpoint.is_alive(talk.handle));
        }
    }
}

impl Talk {
    fn step<F: Fabric>(&mut self, endpoint: &mut Endpoint<F>) -> bool {
        let mut worked = false;
        while let Some(message) = self.to_write.front() {
            if endpoint.left(self.handle).is_none() && endpoint.begin(self.handle, message.len() as u64).is_err() {
                break;
            }
            let before = endpoint.left(self.handle);
            let all = endpoint.hand_over(self.handle, message).expect("the message is the one that was begun");
            worked |= endpoint.left(self.handle) != before;
            if !all {
                break;
            }
            self.to_write.pop_front();
        }
        if self.to_write.is_empty() && !self.finished {
            self.finished = endpoint.finish(self.handle).is_ok();
        }
        while endpoint.read(self.handle, &mut self.reading) {
            worked = true;
            let expected = self.expected.pop_front().expect("no more messages arrive than were written");
            assert_eq!(self.reading, expected, "message {} of connection {}", self.read, self.number);
            self.read += 1;
            self.reading.clear();
        }
        worked
    }
}
