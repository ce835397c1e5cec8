//! Queue pairs: created by both ends, distinguished by service, reset after errors.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, SERVICE, called, check, same, write};
use stentor_fabric::{
    Access, ConnectError, Event, Fabric, PostError, ProcessId, QpConfig, QpId, QpKind, QpState, RemoteRegion, Service,
    Status,
};

const CONFIG: QpConfig = QpConfig::reliable(16, 4);

pub(super) fn both_ends_connect<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let a = called("connect", bed.at(A).connect(B, SERVICE, CONFIG))?;
    bed.settle();
    same("state with one end only", &bed.at(A).state(a), &QpState::Connecting)?;
    let nowhere = RemoteRegion { peer: B, key: 0, bytes: 64 };
    let got = bed.try_post(A, a, 1, write(&[0; 8], nowhere, 0), true);
    same("post while connecting", &got, &Err(PostError::NotReady { qp: a, state: QpState::Connecting }))?;
    let b = called("connect", bed.at(B).connect(A, SERVICE, CONFIG))?;
    bed.event(A, Event::Connected { qp: a, peer: B })?;
    bed.event(B, Event::Connected { qp: b, peer: A })?;
    same("state at one end", &bed.at(A).state(a), &QpState::Ready)?;
    same("state at the other", &bed.at(B).state(b), &QpState::Ready)
}

pub(super) fn services_are_separate<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let one = called("connect", bed.at(A).connect(B, Service(1), CONFIG))?;
    let two = called("connect", bed.at(A).connect(B, Service(2), CONFIG))?;
    check(one != two, || "two queue pairs have one name".to_string())?;
    let other = called("connect", bed.at(B).connect(A, Service(2), CONFIG))?;
    bed.event(A, Event::Connected { qp: two, peer: B })?;
    bed.event(B, Event::Connected { qp: other, peer: A })?;
    bed.settle();
    same("state of the service that only one end made", &bed.at(A).state(one), &QpState::Connecting)
}

pub(super) fn errors<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let nobody = ProcessId(bed.processes() as u16 + 100);
    let got = bed.at(A).connect(nobody, SERVICE, CONFIG);
    same("connecting to a process that is not there", &got, &Err(ConnectError::UnknownProcess(nobody)))?;
    let capabilities = bed.at(A).capabilities().clone();
    let depths = [
        ("send queue", capabilities.max_send_depth, QpConfig::reliable(capabilities.max_send_depth + 1, 1)),
        ("receive queue", capabilities.max_recv_depth, QpConfig::reliable(1, capabilities.max_recv_depth + 1)),
    ];
    for (what, limit, config) in depths {
        let expected = Err(ConnectError::TooDeep { what, asked: limit + 1, limit });
        same("a queue that is too deep", &bed.at(A).connect(B, SERVICE, config), &expected)?;
    }
    if !capabilities.unreliable {
        let config = QpConfig { kind: QpKind::Unreliable, ..CONFIG };
        same("unreliable", &bed.at(A).connect(B, SERVICE, config), &Err(ConnectError::NoUnreliable))?;
    }
    let link = bed.link(16, 4)?;
    let duplicate = Err(ConnectError::Duplicate { peer: B, service: SERVICE });
    same("the same service twice", &bed.at(A).connect(B, SERVICE, CONFIG), &duplicate)?;
    let ready = Err(ConnectError::NotBroken { qp: link.a, state: QpState::Ready });
    same("reset of a working queue pair", &bed.at(A).reset(link.a), &ready)?;
    let unknown = QpId(4_000_000);
    same("reset of nothing", &bed.at(A).reset(unknown), &Err(ConnectError::UnknownQp(unknown)))
}

/// One end disconnects while the other end only polls.
pub(super) fn one_end_disconnects<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    let unknown = QpId(4_000_000);
    same("end of nothing", &bed.at(A).disconnect(unknown), &Err(ConnectError::UnknownQp(unknown)))?;
    bed.complete_write(A, link.a, 1, (remote, 0), &[1], Status::Success)?;
    for round in 0..3_u64 {
        called("disconnect", bed.at(A).disconnect(link.a))?;
        same("state of the end that left", &bed.at(A).state(link.a), &QpState::Error)?;
        called("disconnect", bed.at(A).disconnect(link.a))?;
        bed.event(A, Event::Disconnected { qp: link.a, peer: B })?;
        bed.event(B, Event::Disconnected { qp: link.b, peer: A })?;
        bed.settle();
        bed.reconnect(link)?;
        let remote = bed.resolve(A, B, 1)?;
        bed.complete_write(A, link.a, 3, (remote, 0), &[33 + round], Status::Success)?;
        bed.eventually("the write after the reset", |bed| bed.word(B, region, 0) == 33 + round)?;
    }
    Ok(())
}

pub(super) fn reset_after_an_error<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    bed.complete_write(A, link.a, 1, (remote, 8), &[1], Status::RemoteAccess)?;
    bed.event(A, Event::Disconnected { qp: link.a, peer: B })?;
    let broken = Err(PostError::NotReady { qp: link.a, state: QpState::Error });
    same("post on a broken queue pair", &bed.try_post(A, link.a, 2, write(&[0; 8], remote, 0), true), &broken)?;
    bed.settle();
    bed.reconnect(link)?;
    let remote = bed.resolve(A, B, 1)?;
    bed.complete_write(A, link.a, 3, (remote, 0), &[33], Status::Success)?;
    bed.eventually("the write after the reset", |bed| bed.word(B, region, 0) == 33)
}
