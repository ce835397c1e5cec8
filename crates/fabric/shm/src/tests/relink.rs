//! Connections that break while both processes live, and handshakes that end at any point.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use stentor_fabric::{Event, Fabric, ProcessId, QpConfig, QpId, QpState, Service, Status};

use super::distrust::Raw;
use super::support::*;
use crate::ShmFabric;
use crate::message::Message;
use stentor_host::memfd;

const QP: QpConfig = QpConfig::reliable(16, 4);

/// Breaks the control connection of `fabric` to `peer`: at this end in its next round, at the other when it notices.
fn sever(fabric: &mut ShmFabric, peer: u16) {
    fabric.control.peers[usize::from(peer)].link.as_mut().unwrap().dead = true;
}

/// Runs until everything is ready again and no handshake is in progress.
fn reconnect(pair: &mut Pair, side_a: QpId, side_b: QpId) {
    until("ready", || {
        for fabric in [&mut pair.a, &mut pair.b] {
            for event in events(fabric) {
                if let Event::Disconnected { qp, .. } = event {
                    poll(fabric);
                    fabric.reset(qp).unwrap();
                }
            }
        }
        let a = [pair.a.state(pair.qp_a), pair.a.state(side_a)];
        let b = [pair.b.state(pair.qp_b), pair.b.state(side_b)];
        let quiet = pair.a.control.newcomers.is_empty() && pair.b.control.newcomers.is_empty();
        [a, b] == [[QpState::Ready; 2]; 2] && quiet
    });
}

#[test]
fn a_connection_that_breaks_200_times_returns_200_times() {
    let mut pair = Pair::new(QP);
    let side = Service(8);
    let side_a = pair.a.connect(ProcessId(1), side, QP).unwrap();
    let side_b = pair.b.connect(ProcessId(0), side, QP).unwrap();
    for round in 1..=200_u64 {
        reconnect(&mut pair, side_a, side_b);
        pair.write(round, 0, &[round], true);
        assert_eq!(ends(&poll(&mut pair.a)), [(round, Status::Success)]);
        assert_eq!(pair.word_b(0), round);
        // This write is not flushed before the break: it lands now or never.
        pair.write(round, 8, &[round], true);
        if round % 3 != 0 {
            sever(&mut pair.a, 1);
        }
        if round % 3 != 1 {
            sever(&mut pair.b, 0);
        }
        if round % 5 == 0 {
            let failed = pair.word_b(1);
            until("broken at both ends", || {
                events(&mut pair.a);
                events(&mut pair.b);
                [pair.a.state(side_a), pair.b.state(side_b)] == [QpState::Error; 2]
            });
            assert_eq!(pair.word_b(1), failed);
            for (fabric, qps) in [(&mut pair.a, [pair.qp_a, side_a]), (&mut pair.b, [pair.qp_b, side_b])] {
                poll(fabric);
                for qp in qps {
                    fabric.reset(qp).unwrap();
                }
            }
        }
    }
    reconnect(&mut pair, side_a, side_b);
    for fabric in [&pair.a, &pair.b] {
        assert_eq!(fabric.control.refusals.len(), 0);
    }
}

/// The previous life of a process is still connected when the next life sends its hello. The next life is connected
/// only after the previous one has ended.
#[test]
fn the_next_life_of_a_process_waits_for_the_end_of_the_previous_one() {
    let Raw { socket, mut fabric, directory } = Raw::connected();
    let mut b = ShmFabric::start(config(&directory.0, 1, 3)).unwrap();
    let qp = b.connect(ProcessId(0), SERVICE, QP).unwrap();
    until("it greets", || {
        events(&mut b);
        events(&mut fabric);
        fabric.control.newcomers.iter().any(|newcomer| newcomer.held.is_some())
    });
    assert_eq!(b.state(qp), QpState::Connecting);
    drop(socket);
    until("connected", || {
        events(&mut fabric);
        events(&mut b).contains(&Event::Connected { qp, peer: ProcessId(0) })
    });
    assert_eq!((fabric.next_refusal(), b.next_refusal()), (None, None), "nobody is refused");
    b.connect(ProcessId(0), Service(99), QP).unwrap();
}

/// Cuts the connection of a peer before its first message, and after each of its first four, 50 times each.
#[test]
fn handshakes_that_end_anywhere_leave_nothing() {
    let mut raw = Raw::new();
    let queue: OwnedFd = memfd::create("queue", (24 + 4 + 64) * 8).unwrap();
    let memory: OwnedFd = memfd::create("region", 64).unwrap();
    let (wait, control) = (memfd::create("wait", 4096).unwrap(), memfd::create("control", 64).unwrap());
    let event: OwnedFd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let (purpose, access) = (PURPOSE, stentor_fabric::Access::Write);
    let kind = stentor_fabric::QpKind::Reliable;
    let messages: [(Message, Vec<&OwnedFd>); 4] = [
        (Message::Hello(super::distrust::hello()), vec![]),
        (Message::Welcome { control_words: 8 }, vec![&wait, &control, &event]),
        (Message::Grant { region: 0, purpose, access, bytes: 64, generation: 0 }, vec![&memory]),
        (Message::Offer { service: SERVICE, kind, epoch: 0, ring_words: 64, receives: 4 }, vec![&queue]),
    ];
    let one = ProcessId(1);
    for round in 0..50 * 5 {
        for (message, fds) in &messages[..round % 5] {
            raw.send(message, fds);
        }
        let deep = round % 5 == 4;
        let mut ready = false;
        for turn in 0.. {
            for event in events(&mut raw.fabric) {
                ready |= matches!(event, Event::Connected { .. });
            }
            if if deep { ready } else { turn > round % 4 } {
                break;
            }
        }
        raw.socket = super::distrust::dial(&raw.directory);
        until("nothing is left of it", || {
            events(&mut raw.fabric);
            let peer = &raw.fabric.control.peers[1];
            let nobody = peer.link.is_none() && peer.control.is_none() && peer.offers.is_empty();
            nobody && raw.fabric.data.bells[1].is_none() && raw.fabric.control.newcomers.len() <= 1
        });
        assert_eq!((raw.fabric.data.remotes.count(one), raw.fabric.resolve(one, PURPOSE)), (0, None));
        let qp = stentor_fabric::QpId(0);
        if raw.fabric.state(qp) == QpState::Error {
            raw.fabric.reset(qp).unwrap();
        }
    }
    assert_eq!(raw.fabric.next_refusal(), None);
}
