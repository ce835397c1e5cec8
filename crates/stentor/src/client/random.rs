//! Random words for the ids and generations of sessions.

/// Returns three random words from the operating system.
pub(super) fn random() -> Result<[u64; 3], std::io::Error> {
    let mut bytes = [0; 24];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
    Ok([word(0), word(1), word(2)])
}
