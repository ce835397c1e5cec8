//! Between two threads over shared memory, which has no tags.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use stentor_channel::{Config, Endpoint, EndpointConfig, Hub, Scheme};
use stentor_fabric::{Backoff, ProcessId, WaitMode};
use stentor_fabric_shm::{ShmConfig, ShmFabric};

use crate::bed::{Process, small};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stentor-channel-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fabric(directory: &Directory, me: u16) -> ShmFabric {
    let config = ShmConfig {
        directory: directory.0.join("sockets"),
        max_bytes: 1 << 30,
        janitor: false,
        ..ShmConfig::new("channel", ProcessId(me), &format!("p{me}"), 2)
    };
    ShmFabric::start(config).unwrap()
}

fn run(fabric: ShmFabric, config: EndpointConfig, lengths: &[usize]) {
    let mut process = Process::new(fabric, config, lengths);
    let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
    let begin = Instant::now();
    // The other end may need what this one is still to be told.
    let mut rest = None;
    while rest.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(200)) {
        let worked = process.step();
        assert!(begin.elapsed() < Duration::from_secs(180), "stuck");
        if process.is_done() {
            rest.get_or_insert_with(Instant::now);
        }
        backoff.pause(process.endpoint.fabric_mut(), worked, Duration::from_millis(5)).unwrap();
    }
    process.assert_ok();
}

fn both(name: &str, config: EndpointConfig, lengths: &[usize]) {
    let directory = Directory::new(name);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let directory = &directory;
            scope.spawn(move || run(fabric(directory, me), config, lengths));
        }
    });
}

#[test]
fn short_and_long_messages_both_ways_on_several_connections() {
    let lengths: Vec<usize> = (0..400).map(|n| n * 7 % 900).collect();
    both("small", small(Scheme::Counted), &lengths);
}

#[test]
fn long_messages_of_many_pieces() {
    let channel = Config::with(Scheme::Counted);
    let config = EndpointConfig { connections: 2, ..EndpointConfig::new(channel) };
    both("long", config, &[8 << 20, 0, 3, 4096, 4097, 1 << 20]);
}

/// Calls that block, in two threads: one asks, the other answers.
#[test]
fn questions_and_answers_that_block() {
    let directory = Directory::new("blocking");
    let config = small(Scheme::Counted);
    let hub = |me: u16| {
        let endpoint = Endpoint::new(fabric(&directory, me), config, &[ProcessId(1 - me)]).unwrap();
        Hub::new(endpoint)
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let hub = hub(1);
            let mut channel = hub.open(ProcessId(0), 2).unwrap();
            let answer = async {
                let mut answered = 0;
                while let Some(question) = channel.read().await {
                    let mut question = question.unwrap();
                    question.reverse();
                    channel.write(&question).await.unwrap();
                    answered += 1;
                }
                channel.close().await.unwrap();
                answered
            };
            hub.block_on(WaitMode::ADAPTIVE, answer).unwrap()
        });
        let hub = hub(0);
        let mut channel = hub.open(ProcessId(1), 2).unwrap();
        let ask = async {
            for n in 0..500_usize {
                let question: Vec<u8> = (0..n * 3 % 1000).map(|at| (at + n) as u8).collect();
                assert_eq!(channel.write(&question).await, Ok(n as u64));
                let mut answer = channel.read().await.expect("an answer").unwrap();
                answer.reverse();
                assert_eq!(answer, question);
            }
            channel.close().await
        };
        assert_eq!(hub.block_on(WaitMode::ADAPTIVE, ask).unwrap(), Ok(()));
        assert_eq!(answering.join().unwrap(), 500);
    });
}
