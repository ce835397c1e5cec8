//! S7 addresses: the address and the key of a copy are those of the previous control packet in the sender's order, even
//! if the copy is retransmitted.

use super::{Copied, SetWatch};

pub(super) fn copied(watch: &SetWatch, copy: &Copied) -> Result<(), String> {
    let Some((place, packet)) = watch.planned(copy.from, copy.psn) else { return Ok(()) };
    let Some(linked) = watch.streams[usize::from(copy.from)].member(packet, copy.to) else { return Ok(()) };
    let should = packet.va.map(|va| (linked.base.wrapping_add(va), linked.rkey));
    if should == copy.reth {
        return Ok(());
    }
    Err(format!(
        "packet {place} of rank {} goes to {:x?} at rank {}, not to {should:x?}",
        copy.from, copy.reth, copy.to
    ))
}
