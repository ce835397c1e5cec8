//! S4 progress: the PSN that all members acknowledged never decreases within an epoch. An answer of another epoch, or
//! of a host that is not a member, changes nothing.

use super::{Registers, SetWatch};

pub(super) fn registers(watch: &SetWatch, now: &Registers, foreign_answer: bool) -> Result<(), String> {
    let Some(before) = &watch.registers else { return Ok(()) };
    if foreign_answer && before != now {
        return Err(format!("an answer that must not count changed {before:?} to {now:?}"));
    }
    let back = now.last.wrapping_sub(before.last) & 0x80_0000 != 0;
    let same = before.active && now.active && before.epoch == now.epoch;
    if same && back {
        Err(format!("{:#08x} after {:#08x} in epoch {}", now.last, before.last, now.epoch))
    } else {
        Ok(())
    }
}
