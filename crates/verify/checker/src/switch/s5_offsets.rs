//! S5 offsets: a member's offsets of PSNs and of message numbers are constant while the epoch and the control packet
//! are unchanged.

use super::{Registers, SetWatch};

pub(super) fn registers(watch: &SetWatch, now: &Registers) -> Result<(), String> {
    let Some(before) = &watch.registers else { return Ok(()) };
    if !before.active || !now.active || (before.epoch, before.control) != (now.epoch, now.control) {
        return Ok(());
    }
    for (rank, (old, new)) in before.members.iter().zip(&now.members).enumerate() {
        let offset = |member: &super::MemberView| member.out_psn.wrapping_sub(member.in_psn) & 0xff_ffff;
        if now.mask >> rank & 1 == 1 && (offset(old), old.msn_offset) != (offset(new), new.msn_offset) {
            return Err(format!("rank {rank} in epoch {}: {old:?} became {new:?}", now.epoch));
        }
    }
    Ok(())
}
