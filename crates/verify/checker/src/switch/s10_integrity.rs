//! S10 integrity: a packet that leaves has a right ICRC exactly if the one that came in had.

pub(super) fn left(came_intact: bool, is_intact: bool) -> Result<(), String> {
    if came_intact == is_intact {
        return Ok(());
    }
    Err(format!("intact when it came: {came_intact}; when it left: {is_intact}"))
}
