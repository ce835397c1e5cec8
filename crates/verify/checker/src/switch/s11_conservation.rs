//! S11 conservation: at most n copies of a packet for n receivers, and every loop ends: after n passes, and one to complain; for
//! a control packet one to look and one to take over besides.

pub(super) fn looped(passes: u32, copies: u32, members: u32, control: bool) -> Result<(), String> {
    let most = members.max(1) + if control { 2 } else { 1 };
    if passes > most || copies > members {
        return Err(format!("{passes} passes and {copies} copies for {members} receivers"));
    }
    Ok(())
}
