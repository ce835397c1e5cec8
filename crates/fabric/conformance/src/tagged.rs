//! Tagged messages with ignore masks.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, need, same};
use super::send::{received, room};
use stentor_fabric::{Fabric, Opcode, Source, Status, Verb};

fn message(tag: u64) -> Verb<'static> {
    Verb::TaggedSend { source: Source::Inline(&[9, 8, 7, 6, 5]), tag }
}

pub(super) fn exact_and_masked_tags_match<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().tagged, "tagged messages")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    // Tuples of (id, tag, ignored bits): any tag of channel 2; exactly 0x105; exactly 0x106.
    for (slot, (id, tag, ignore)) in [(20, 0x200, 0xff), (21, 0x105, 0), (22, 0x106, 0)].into_iter().enumerate() {
        let room = room(inbox, slot as u64);
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room, tag, ignore, id))?;
    }
    for (id, tag, slot, recv) in [(1, 0x106, 2, 22), (2, 0x2ab, 0, 20), (3, 0x105, 1, 21)] {
        bed.post(A, link.a, id, message(tag))?;
        let got = bed.expect(B, link.b, recv, (Opcode::TaggedRecv, Status::Success))?;
        same("tag and length", &(got.tag, got.bytes), &(tag, 5))?;
        same("data", &received(bed, inbox, slot, 5), &vec![9, 8, 7, 6, 5])?;
        bed.expect(A, link.a, id, (Opcode::TaggedSend, Status::Success))?;
    }
    Ok(())
}

pub(super) fn unexpected_messages_wait<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().tagged, "tagged messages")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    for (id, tag) in [(1, 5), (2, 6), (3, 5)] {
        bed.post(A, link.a, id, message(tag))?;
    }
    bed.settle();
    for (slot, (id, tag)) in [(30, 6), (31, 5), (32, 5)].into_iter().enumerate() {
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room(inbox, slot as u64), tag, 0, id))?;
        let got = bed.expect(B, link.b, id, (Opcode::TaggedRecv, Status::Success))?;
        same("tag", &got.tag, &tag)?;
    }
    Ok(())
}

pub(super) fn masks_match_unexpected_messages<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().masks_find_early, "masks that find what came early")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    for (id, tag) in [(1, 0x105), (2, 0x206), (3, 0x107)] {
        bed.post(A, link.a, id, message(tag))?;
    }
    bed.settle();
    for (slot, (id, channel, tag)) in
        [(50, 0x200, 0x206), (51, 0x100, 0x105), (52, 0x100, 0x107)].into_iter().enumerate()
    {
        let room = room(inbox, slot as u64);
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room, channel, 0xff, id))?;
        let got = bed.expect(B, link.b, id, (Opcode::TaggedRecv, Status::Success))?;
        same("tag", &got.tag, &tag)?;
    }
    Ok(())
}

/// Cancels the first of two receives for a tag. The message matches the second receive, and each receive completes
/// once.
pub(super) fn cancelled_receives_complete_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().tagged, "tagged messages")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    for id in [40, 41] {
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room(inbox, id - 40), 7, 0, id))?;
    }
    called("cancel_tagged_recv", bed.at(B).cancel_tagged_recv(link.b, 40))?;
    let got = bed.expect(B, link.b, 40, (Opcode::TaggedRecv, Status::Cancelled))?;
    same("bytes of a cancelled receive", &got.bytes, &0)?;
    bed.post(A, link.a, 1, message(7))?;
    bed.expect(B, link.b, 41, (Opcode::TaggedRecv, Status::Success))?;
    same("data", &received(bed, inbox, 1, 5), &vec![9, 8, 7, 6, 5])?;
    same("memory of the cancelled receive", &received(bed, inbox, 0, 5), &vec![0; 5])?;
    // Cancelling a completed receive has no effect, and the queue pair keeps working.
    called("cancel_tagged_recv", bed.at(B).cancel_tagged_recv(link.b, 41))?;
    called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room(inbox, 2), 8, 0, 42))?;
    bed.post(A, link.a, 2, message(8))?;
    bed.expect(B, link.b, 42, (Opcode::TaggedRecv, Status::Success))?;
    Ok(())
}
