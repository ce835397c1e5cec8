//! S6 one holder: each epoch has at most one holder, and data of other hosts is never replicated.

use super::{Copied, Registers, SetWatch};

pub(super) fn copied(watch: &SetWatch, copy: &Copied) -> Result<(), String> {
    match &watch.registers {
        Some(now) if !now.active || now.holder != copy.from => Err(format!(
            "a copy of a packet of rank {} while rank {} holds the set (active: {})",
            copy.from, now.holder, now.active
        )),
        _ => Ok(()),
    }
}

pub(super) fn registers(watch: &mut SetWatch, now: &Registers) -> Result<(), String> {
    if !now.active {
        return Ok(());
    }
    match watch.holders.iter().find(|(epoch, _)| *epoch == now.epoch) {
        Some((epoch, holder)) if *holder != now.holder && *holder != u8::MAX => {
            Err(format!("ranks {holder} and {} both hold the set in epoch {epoch}", now.holder))
        }
        Some((_, holder)) if *holder == now.holder => Ok(()),
        _ => {
            watch.holders = [(now.epoch, now.holder), watch.holders[0]];
            Ok(())
        }
    }
}
