//! S3 windows: the PSN that a receiver expects is at most the next one that the switch sends to it, and its PSNs are
//! assigned without holes.

use super::{Copied, Registers, SetWatch};

pub(super) fn copied(watch: &SetWatch, copy: &Copied) -> Result<(), String> {
    let Some(receiver) = watch.receivers.get(usize::from(copy.to)) else { return Ok(()) };
    let out = copy.out_psn.wrapping_sub(receiver.first) & 0xff_ffff;
    if out as usize > receiver.carried.len() {
        return Err(format!("{:#08x} for rank {}: {} were sent before", copy.out_psn, copy.to, receiver.carried.len()));
    }
    Ok(())
}

pub(super) fn registers(watch: &SetWatch, registers: &Registers) -> Result<(), String> {
    for (rank, (member, receiver)) in registers.members.iter().zip(&watch.receivers).enumerate() {
        let out = member.out_psn.wrapping_sub(receiver.first) & 0xff_ffff;
        if out < receiver.executed {
            return Err(format!("rank {rank} executed {}, and the switch has sent {out}", receiver.executed));
        }
        if out - receiver.executed >= 1 << 23 {
            return Err(format!("{out} packets sent to rank {rank}, which executed {}", receiver.executed));
        }
    }
    Ok(())
}
