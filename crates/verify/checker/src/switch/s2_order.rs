//! S2 order: every receiver executes the senders' streams in order and exactly once, and messages are never
//! interleaved.

use super::{Copied, SetWatch};

/// Checks that each PSN of a receiver carries only one packet, even if it is repeated.
pub(super) fn copied(watch: &mut SetWatch, copy: &Copied) -> Result<(), String> {
    let Some((place, _)) = watch.planned(copy.from, copy.psn) else {
        return Err(format!("a copy for rank {} of a packet that rank {} never posted", copy.to, copy.from));
    };
    let Some(receiver) = watch.receivers.get_mut(usize::from(copy.to)) else {
        return Err(format!("a copy for rank {}, which does not exist", copy.to));
    };
    let out = copy.out_psn.wrapping_sub(receiver.first) & 0xff_ffff;
    match receiver.carried.get(out as usize) {
        None if out as usize == receiver.carried.len() => receiver.carried.push((copy.from, place)),
        // S3 reports holes.
        None => {}
        Some(before) if *before != (copy.from, place) => {
            let before = *before;
            return Err(format!(
                "{:#08x} for rank {} carries packet {place} of rank {} now, and packet {} of rank {} before",
                copy.out_psn, copy.to, copy.from, before.1, before.0
            ));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Checks the packet that a receiver executes under its next PSN.
pub(super) fn executed(watch: &mut SetWatch, rank: u8, at: u32) -> Result<(), String> {
    let receiver = &mut watch.receivers[usize::from(rank)];
    let Some((from, place)) = receiver.carried.get(at as usize).copied() else {
        return Err(format!("rank {rank} executed its packet {at}, which was never sent to it"));
    };
    let inside = receiver.inside;
    let stream = &watch.streams[usize::from(from)];
    let reached = &mut receiver.reached[usize::from(from)];
    let expected = stream.next_for(*reached, rank);
    *reached = (*reached).max(place + 1);
    receiver.inside = stream.packet(place).is_some_and(|packet| !packet.ends).then_some(from);
    if expected != Some(place) {
        return Err(format!("rank {rank} executed packet {place} of rank {from} where {expected:?} was next"));
    }
    match inside {
        Some(other) if other != from => {
            Err(format!("rank {rank} executed a packet of {from} inside a message of {other}"))
        }
        _ => Ok(()),
    }
}
