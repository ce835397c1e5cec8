//! SL2 no timeouts: if nothing is lost and links keep their order, no host ever waits for a timeout.

pub(super) fn end(timeouts: u64, disturbed: bool) -> Result<(), String> {
    if timeouts == 0 || disturbed {
        return Ok(());
    }
    Err(format!("{timeouts} timeouts although no packet was lost, delayed or reordered"))
}
