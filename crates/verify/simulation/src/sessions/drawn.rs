//! The workload of a drawn run: commands with a number, to groups that are drawn from the seed.

use stentor_multicast::ClientId;

use super::tally::is_query;
use super::told::Told;
use super::workload::{Begun, Next, Turn, Workload};

/// A workload of calls that consist of a number and padding.
pub(super) struct Drawn;

impl Workload for Drawn {
    fn next(&mut self, turn: &mut Turn<'_>) -> Next {
        Next::Call(turn.draw_groups())
    }

    fn is_query(&self, _: ClientId, token: u64) -> bool {
        is_query(token)
    }

    fn begun(&mut self, _: &Begun<'_>) {}

    fn command(&self, token: u64, out: &mut Vec<u8>) {
        out.resize(out.len() + token as usize % 64, token as u8);
    }

    fn told(&mut self, _: u64, _: &Told, _: u64) {}
}
