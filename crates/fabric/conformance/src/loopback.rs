//! A process connected to itself, which reads its memory as its peers do (rule 3).

use super::Testbed;
use super::bed::{A, Bed, Outcome, SERVICE, called, need, place, same, span};
use stentor_fabric::{Access, ConnectError, Event, Fabric, QpConfig, QpState, Status, Verb};

pub(super) fn writes_and_reads<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().loopback, "loopback")?;
    let region = bed.region(A, A, 1, 16, Some(Access::Write))?;
    let local = bed.region(A, A, 2, 8, None)?;
    let qp = called("connect to oneself", bed.at(A).connect(A, SERVICE, QpConfig::reliable(16, 4)))?;
    bed.event(A, Event::Connected { qp, peer: A })?;
    same("state", &bed.at(A).state(qp), &QpState::Ready)?;
    let remote = bed.resolve(A, A, 1)?;
    for n in 1..40_u64 {
        bed.complete_write(A, qp, 2 * n, (remote, n as usize % 12), &[n, n * n, 3], Status::Success)?;
        bed.complete(
            A,
            qp,
            2 * n + 1,
            Verb::Read { local: span(local, 0, 3), remote: place(remote, n as usize % 12) },
            Status::Success,
        )?;
        same("what the READ brought", &bed.words(A, local)[..3].to_vec(), &vec![n, n * n, 3])?;
    }
    bed.eventually("the last write in the own memory", |bed| bed.word(A, region, 39 % 12) == 39)
}

pub(super) fn own_access_is_limited<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().loopback, "loopback")?;
    bed.region(A, A, 1, 8, Some(Access::Read))?;
    let qp = called("connect to oneself", bed.at(A).connect(A, SERVICE, QpConfig::reliable(16, 4)))?;
    bed.event(A, Event::Connected { qp, peer: A })?;
    let twice = bed.at(A).connect(A, SERVICE, QpConfig::reliable(16, 4));
    same("the same service twice", &twice, &Err(ConnectError::Duplicate { peer: A, service: SERVICE }))?;
    let remote = bed.resolve(A, A, 1)?;
    bed.complete_write(A, qp, 1, (remote, 0), &[1], Status::RemoteAccess)?;
    bed.event(A, Event::Disconnected { qp, peer: A })?;
    called("reset", bed.at(A).reset(qp))?;
    bed.event(A, Event::Connected { qp, peer: A })?;
    same("state after a reset", &bed.at(A).state(qp), &QpState::Ready)
}
