//! Unreliable connections, whose losses are not reported.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, SERVICE, bytes_of, called, check, need, place, same, span};
use stentor_fabric::seal::Seal;
use stentor_fabric::{
    Access, Fabric, Opcode, QpConfig, QpKind, QpState, SealedSlot, SendQueue, SlotReader, Status, Verb,
};

const CONFIG: QpConfig = QpConfig { kind: QpKind::Unreliable, send_depth: 32, recv_depth: 8, merges: false };

pub(super) fn lossy_but_unbroken<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().unreliable, "unreliable connections")?;
    let region = bed.region(B, A, 1, 8, Some(Access::Write))?;
    let link = bed.connect((A, B), SERVICE, CONFIG)?;
    let remote = bed.resolve(A, B, 1)?;
    let seal = Seal::new(A, 1);
    let (mut slot, mut reader) = (SealedSlot::new(seal), SlotReader::new(seal));
    let mut queue = SendQueue::new(CONFIG.send_depth);
    let mut seen = 0;
    // Each value is written repeatedly until it is seen.
    for lap in 1..200_u64 {
        bed.until(&format!("value {lap} arrives when it is written again and again"), |bed| {
            while let Some(done) = bed.take_any(A) {
                same("completion", &(done.opcode, done.status), &(Opcode::Write, Status::Success))?;
                queue.completed(done.id);
            }
            if queue.free() > 0 {
                let mut record = [0; 8];
                let data = bytes_of(slot.seal(&[lap], &mut record));
                let signalled = queue.signal_next();
                let verb = super::bed::write(&data, remote, 0);
                called("post", bed.try_post(A, link.a, queue.next_id(), verb, signalled))?;
                queue.posted(signalled);
            }
            if let Some([value]) = reader.read(bed.at(B).memory(region)) {
                check(value <= lap && value >= seen, || format!("{value} after {seen}, written up to {lap}"))?;
                seen = value;
            }
            Ok((seen == lap).then_some(()))
        })?;
    }
    same("state", &bed.at(A).state(link.a), &QpState::Ready)
}

pub(super) fn only_send_and_write<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().unreliable, "unreliable connections")?;
    bed.region(B, A, 1, 8, Some(Access::Atomic))?;
    let local = bed.region(A, A, 2, 8, None)?;
    let link = bed.connect((A, B), SERVICE, CONFIG)?;
    let remote = place(bed.resolve(A, B, 1)?, 0);
    let local = span(local, 0, 1);
    let read = bed.try_post(A, link.a, 1, Verb::Read { local, remote }, true);
    check(read.is_err(), || "a READ was posted on an unreliable queue pair".to_string())?;
    let add = bed.try_post(A, link.a, 2, Verb::FetchAdd { local, remote, add: 1 }, true);
    check(add.is_err(), || "an atomic was posted on an unreliable queue pair".to_string())
}
