//! Access control: the memory that each process may reach (rule 6).

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, SERVICE, called, check, need, place, same, span, write};
use stentor_fabric::memory::WORD;
use stentor_fabric::{
    Access, AccessError, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpState, RegionId, RemoteRegion,
    Service, Status, Verb, WorkRequest,
};

pub(super) fn grants_travel<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.region(B, A, 1, 16, Some(Access::Write))?;
    let late = bed.region(B, A, 2, 8, None)?;
    check(bed.at(A).resolve(B, Purpose(1)).is_none(), || "resolved before connecting".to_string())?;
    bed.link(16, 4)?;
    let Some(first) = bed.at(A).resolve(B, Purpose(1)) else {
        return check(false, || "granted before connecting, yet not resolved after Connected".to_string());
    };
    same("size and owner", &(first.peer, first.bytes), &(B, 16 * WORD as u64))?;
    bed.settle();
    check(bed.at(A).resolve(B, Purpose(2)).is_none(), || "resolved without a grant".to_string())?;
    check(bed.at(A).resolve(B, Purpose(3)).is_none(), || "resolved without a region".to_string())?;
    called("grant", bed.at(B).grant(late, A, Access::Write))?;
    let second = bed.resolve(A, B, 2)?;
    check(second.key != first.key, || format!("two regions have one key {}", first.key))
}

pub(super) fn errors<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let region = bed.region(A, B, 1, 8, None)?;
    let unknown = RegionId(4_000_000);
    let stranger = ProcessId(2);
    let not_for = Err(AccessError::NotForPeer { region, writer: B, peer: stranger });
    let nothing = Err(AccessError::UnknownRegion(unknown));
    same("grant of nothing", &bed.at(A).grant(unknown, B, Access::Read), &nothing)?;
    same("revoke of nothing", &bed.at(A).revoke(unknown, B), &nothing)?;
    same("grant to another", &bed.at(A).grant(region, stranger, Access::Write), &not_for)?;
    if !bed.at(A).capabilities().many_readers {
        same("grant to read to another", &bed.at(A).grant(region, stranger, Access::Read), &not_for)?;
    }
    same("revoke from another", &bed.at(A).revoke(region, stranger), &not_for)
}

pub(super) fn writes_outside_the_region_are_refused<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let guard = bed.region(B, A, 1, 8, None)?;
    let region = bed.region(B, A, 2, 8, Some(Access::Write))?;
    let link = bed.link(16, 4)?;
    for (id, word) in [8, 7, usize::MAX >> 4, 1 << 40].into_iter().enumerate() {
        let remote = bed.resolve(A, B, 2)?;
        // A requester may claim any size; the size at the owner counts.
        let remote = RemoteRegion { bytes: u64::MAX, ..remote };
        let id = id as u64;
        bed.complete_write(A, link.a, id, (remote, word), &[9, 9], Status::RemoteAccess)?;
        bed.settle();
        same("the region", &bed.words(B, region), &vec![0; 8])?;
        same("its neighbour", &bed.words(B, guard), &vec![0; 8])?;
        bed.reconnect(link)?;
    }
    Ok(())
}

pub(super) fn refusals_of_unsignalled_requests_are_reported<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (_, link, remote) = bed.linked(8, Access::Write, 16)?;
    called("post", bed.try_post(A, link.a, 5, write(&[1; 16], remote, 7), false))?;
    bed.expect(A, link.a, 5, (Opcode::Write, Status::RemoteAccess))?;
    Ok(())
}

pub(super) fn nothing_after_a_refusal_takes_effect<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().ordered_writes, "order between writes")?;
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    let mut posted = Vec::new();
    for (id, word) in [(1, 8), (2, 0), (3, 1), (4, 2)] {
        let request = WorkRequest { id, verb: write(&[1; 8], remote, word), signalled: id == 4 };
        match bed.at(A).post(link.a, request) {
            Ok(()) => posted.push(id),
            // A fabric that executes requests while posting has already broken the queue pair.
            Err(PostError::NotReady { state: QpState::Error, .. }) if id > 1 => {}
            Err(error) => return check(false, || format!("post {id}: {error:?}")),
        }
    }
    bed.at(A).flush();
    for id in posted {
        let status = if id == 1 { Status::RemoteAccess } else { Status::Flushed };
        bed.expect(A, link.a, id, (Opcode::Write, status))?;
    }
    bed.settle();
    same("the region", &bed.words(B, region), &vec![0; 8])
}

pub(super) fn other_peers_are_refused<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let thief = ProcessId(2);
    let region = bed.region(B, A, 1, 8, Some(Access::Atomic))?;
    bed.link(16, 4)?;
    let stolen = bed.resolve(A, B, 1)?;
    let link = bed.connect((thief, B), Service(3), QpConfig::reliable(16, 4))?;
    check(bed.at(thief).resolve(B, Purpose(1)).is_none(), || "another peer's grant was resolved".to_string())?;
    bed.complete_write(thief, link.a, 1, (stolen, 0), &[6], Status::RemoteAccess)?;
    bed.settle();
    same("the region", &bed.words(B, region), &vec![0; 8])
}

pub(super) fn rights_are_enforced<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let readable = bed.region(B, A, 1, 8, Some(Access::Read))?;
    let writable = bed.region(B, A, 2, 8, Some(Access::Write))?;
    let local = bed.region(A, A, 3, 8, None)?;
    let link = bed.connect((A, B), SERVICE, QpConfig::reliable(16, 4))?;
    let remote = bed.resolve(A, B, 1)?;
    bed.complete_write(A, link.a, 1, (remote, 0), &[5], Status::RemoteAccess)?;
    bed.settle();
    same("a region granted for reading", &bed.words(B, readable), &vec![0; 8])?;
    bed.reconnect(link)?;
    let remote = bed.resolve(A, B, 1)?;
    bed.complete(A, link.a, 2, Verb::Read { local: span(local, 0, 8), remote: place(remote, 0) }, Status::Success)?;
    if bed.at(A).capabilities().atomics {
        let remote = bed.resolve(A, B, 2)?;
        let verb = Verb::FetchAdd { local: span(local, 0, 1), remote: place(remote, 0), add: 1 };
        bed.complete(A, link.a, 3, verb, Status::RemoteAccess)?;
        bed.settle();
        same("a region granted for writing", &bed.words(B, writable), &vec![0; 8])?;
    }
    Ok(())
}
