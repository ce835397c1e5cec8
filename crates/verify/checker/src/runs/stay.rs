//! A life of a member.

use super::Start;
use crate::ids::Ballot;
use crate::log::{Delivery, Life, Log};

/// A life of a member, and what it did as one.
pub(super) struct Stay<'a> {
    pub(super) start: &'a Start,
    /// One, unless the process came back under its number.
    pub(super) lives: Vec<&'a Life>,
}

impl Stay<'_> {
    /// When it said first that it holds its group's state.
    pub(super) fn held(&self, log: &Log) -> Option<u64> {
        let times = |life: &&Life| {
            let delivered = life.deliveries.first().map(|delivery| log.deliveries[*delivery as usize].t);
            let ready = life.ready.first().map(|ready| ready.kept.event.t);
            [life.recovered.map(|recovered| recovered.t), delivered, ready].into_iter().flatten().min()
        };
        self.lives.iter().filter_map(times).min()
    }

    /// The largest number after which it resumed, by what it says or delivers first; `None` if nothing shows that.
    pub(super) fn resumed(&self, log: &Log) -> Option<u64> {
        let said = self.lives.iter().filter_map(|life| life.recovered).map(|recovered| recovered.from);
        let first = self.deliveries(log).next().map(|delivery| delivery.deliver.number.saturating_sub(1));
        said.chain(first).max()
    }

    pub(super) fn deliveries<'l>(&self, log: &'l Log) -> impl DoubleEndedIterator<Item = &'l Delivery> {
        self.lives.iter().flat_map(|life| &life.deliveries).map(|delivery| &log.deliveries[*delivery as usize])
    }

    pub(super) fn ready(&self) -> impl Iterator<Item = Ballot> {
        self.lives.iter().flat_map(|life| &life.ready).map(|ready| ready.ballot)
    }
}
