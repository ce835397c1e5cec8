//! Connections between a process and observers, which have the key but are no process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;
use stentor_fabric_net::ask::{AskConfig, AskError, ask};
use stentor_fabric_net::observe::{Dial, Dialled, Line};

mod asked;

use asked::{Manager, NoTransport, PATIENCE, start};

/// Returns both ends of a connection, the observer's first, or the reason why there is none.
fn lines(cm: &mut Manager, to: &AskConfig) -> Result<(Line, Line), AskError> {
    let (mut dial, since) = (Box::new(Dial::begin(to.clone())?), Instant::now());
    let one = loop {
        assert!(since.elapsed() < PATIENCE, "it hangs");
        cm.pump(&mut NoTransport);
        match dial.turn()? {
            Dialled::Line(line) => break line,
            Dialled::Waits(waits) => dial = waits,
        }
    };
    loop {
        assert!(since.elapsed() < PATIENCE, "it hangs");
        cm.pump(&mut NoTransport);
        if let Some(other) = cm.next_observer() {
            return Ok((one, other));
        }
    }
}

/// Reads `bytes` bytes, some of which may have arrived with the handshake.
fn read(line: &mut Line, bytes: usize) -> Vec<u8> {
    let mut all = std::mem::take(&mut line.unread);
    line.socket.set_nonblocking(false).unwrap();
    let mut rest = vec![0; bytes - all.len()];
    line.socket.read_exact(&mut rest).unwrap();
    all.extend(rest);
    all
}

#[test]
fn frames_are_authenticated_and_never_replayed_or_reflected() {
    let (mut cm, config) = start();
    let (mut one, mut other) = lines(&mut cm, &config).unwrap();
    assert!(one.unsent.is_empty() && other.unsent.is_empty());
    let seal = one.seals.seal(b"first");
    one.socket.write_all(b"first").unwrap();
    one.socket.write_all(&seal).unwrap();
    let came = read(&mut other, 5 + seal.len());
    assert!(other.seals.open(&came[..5], &came[5..]));
    assert!(!other.seals.open(&came[..5], &came[5..]), "replayed");
    assert!(!one.seals.open(b"first", &seal), "sent back");
    let (mut third, mut fourth) = lines(&mut cm, &config).unwrap();
    let seal = third.seals.seal(b"first");
    assert!(!other.seals.open(b"first", &seal), "sealed for another connection");
    assert!(!fourth.seals.open(b"forst", &seal), "changed");
    assert_eq!(cm.next_refusal(), None);
    // A program that queries is not an observer.
    let asks = config.clone();
    let asked = std::thread::spawn(move || ask(&asks, b"how", PATIENCE));
    let since = Instant::now();
    while !asked.is_finished() {
        assert!(since.elapsed() < PATIENCE, "it hangs");
        cm.pump(&mut NoTransport);
        while let Some((question, _)) = cm.next_question() {
            cm.answer(question, b"so");
        }
    }
    assert_eq!(asked.join().unwrap(), Ok(b"so".to_vec()));
    assert!(cm.next_observer().is_none());
}

#[test]
fn a_program_with_another_key_or_target_gets_no_connection() {
    let (mut cm, config) = start();
    let cases: [(&str, AskConfig); 3] = [
        ("key", AskConfig { key: b"yek".to_vec(), ..config.clone() }),
        ("another process", AskConfig { process: ProcessId(0), ..config.clone() }),
        ("cluster", AskConfig { cluster: "d".into(), ..config.clone() }),
    ];
    for (what, strange) in cases {
        let error = lines(&mut cm, &strange).unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    assert!(lines(&mut cm, &config).is_ok(), "it goes on for others");
}

#[test]
fn unclaimed_connections_and_peers_that_send_garbage_are_bounded() {
    let (mut cm, config) = start();
    let garbage: Vec<_> = (0..10)
        .map(|n| {
            let mut stream = TcpStream::connect(config.at).unwrap();
            stream.write_all(&[n; 900]).unwrap();
            stream
        })
        .collect();
    let mut kept = Vec::new();
    for _ in 0..40 {
        let (mut dial, since) = (Box::new(Dial::begin(config.clone()).unwrap()), Instant::now());
        kept.push(loop {
            assert!(since.elapsed() < PATIENCE, "it hangs");
            cm.pump(&mut NoTransport);
            match dial.turn().unwrap() {
                Dialled::Line(line) => break line,
                Dialled::Waits(waits) => dial = waits,
            }
        });
    }
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(300) {
        cm.pump(&mut NoTransport);
    }
    assert_eq!(std::iter::from_fn(|| cm.next_observer()).count(), 32, "the oldest made room");
    drop(garbage);
}
