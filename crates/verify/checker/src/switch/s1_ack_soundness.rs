//! S1 ack soundness: a PSN that is acknowledged to the sender, explicitly or implied by a refusal, has been executed by
//! every member of the session.

use super::{SetWatch, Told};

pub(super) fn told(watch: &mut SetWatch, told: &Told) -> Result<(), String> {
    let rank = usize::from(told.rank);
    let Some(stream) = watch.streams.get(rank) else { return Err(format!("rank {} does not exist", told.rank)) };
    let place = stream.place(told.up_to);
    if place >= 1 << 23 {
        // The first packet is refused, so nothing is acknowledged.
        return Ok(());
    }
    if place >= stream.len() {
        return Err(format!(
            "an answer to rank {} acknowledges {:#08x}, which the rank never posted",
            told.rank, told.up_to
        ));
    }
    for at in stream.sound..=place {
        let Some(packet) = stream.packet(at) else { continue };
        for member in stream.members(packet) {
            let receiver = watch.receivers.get(usize::from(member.rank));
            if receiver.is_none_or(|receiver| receiver.reached[rank] <= at) {
                return Err(format!(
                    "an answer to rank {} acknowledges {:#08x}: its packet {at} was not executed by rank {}",
                    told.rank, told.up_to, member.rank
                ));
            }
        }
    }
    watch.streams[rank].sound = watch.streams[rank].sound.max(place + 1);
    Ok(())
}
