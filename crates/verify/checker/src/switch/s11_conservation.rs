//! S11 conservation: a packet has at most n copies for n receivers, and every loop ends. A data packet takes at most
//! `n + 1` passes, one of them for a refusal. A control packet takes at most `n + 2` passes, including one that only
//! reads registers and, if it takes over the set, one that stores the done PSN of the former holder.

pub(super) fn looped(passes: u32, copies: u32, members: u32, control: bool) -> Result<(), String> {
    let most = members.max(1) + if control { 2 } else { 1 };
    if passes > most || copies > members {
        return Err(format!("{passes} passes and {copies} copies for {members} receivers"));
    }
    Ok(())
}
