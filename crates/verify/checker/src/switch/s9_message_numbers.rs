//! S9 message numbers: the message number in an answer is the number of the sender's messages up to the PSN in the
//! answer.

use super::{SetWatch, Told};

pub(super) fn told(watch: &SetWatch, told: &Told) -> Result<(), String> {
    let Some(stream) = watch.streams.get(usize::from(told.rank)) else { return Ok(()) };
    let place = stream.place(told.up_to);
    let Some(packet) = stream.packet(place) else { return Ok(()) };
    if packet.messages & 0xff_ffff == told.msn {
        return Ok(());
    }
    let (rank, psn, messages) = (told.rank, told.up_to, packet.messages);
    Err(format!("an answer to rank {rank} counts {} messages up to {psn:#08x} instead of {messages}", told.msn))
}
