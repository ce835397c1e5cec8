//! S8 atomic control: nothing is replicated with mixed versions, and the members are exactly those that were linked.

use super::{Copied, Registers, SetWatch};

pub(super) fn copied(watch: &SetWatch, copy: &Copied) -> Result<(), String> {
    if let Some(now) = &watch.registers
        && let Some(member) = now.members.get(usize::from(copy.to))
        && (member.version != now.epoch || now.mask >> copy.to & 1 == 0)
    {
        return Err(format!("a copy for rank {} of version {} in epoch {}", copy.to, member.version, now.epoch));
    }
    let Some((place, packet)) = watch.planned(copy.from, copy.psn) else { return Ok(()) };
    if watch.streams[usize::from(copy.from)].member(packet, copy.to).is_none() {
        return Err(format!("packet {place} of rank {} is not for rank {}", copy.from, copy.to));
    }
    Ok(())
}

pub(super) fn registers(watch: &SetWatch, now: &Registers) -> Result<(), String> {
    if !now.active || watch.registers.as_ref().is_some_and(|before| before.active && before.epoch == now.epoch) {
        return Ok(());
    }
    // A session begins here, so the versions of all its members must match.
    for (rank, member) in now.members.iter().enumerate().filter(|(rank, _)| now.mask >> rank & 1 == 1) {
        if member.version != now.epoch {
            return Err(format!("epoch {} begins with rank {rank} of version {}", now.epoch, member.version));
        }
    }
    Ok(())
}
