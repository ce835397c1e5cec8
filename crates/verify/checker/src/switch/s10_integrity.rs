//! S10 integrity: an outgoing packet has a correct ICRC exactly if the incoming packet had one.

pub(super) fn left(came_intact: bool, is_intact: bool) -> Result<(), String> {
    if came_intact == is_intact {
        return Ok(());
    }
    Err(format!("intact when it came: {came_intact}; when it left: {is_intact}"))
}
