//! S10 integrity: an outgoing packet has a correct ICRC exactly if the incoming packet had one.

pub(super) fn left(came_intact: bool, is_intact: bool) -> Result<(), String> {
    if came_intact == is_intact {
        return Ok(());
    }
    Err(format!("incoming packet intact: {came_intact}; outgoing packet intact: {is_intact}"))
}
