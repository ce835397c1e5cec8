//! A life of a group member, with the events that the checker reads from it.

use super::Start;
use crate::ids::Ballot;
use crate::log::{Delivery, Life, Log};

/// A life of a member: all events that its process recorded under one number.
pub(super) struct Stay<'a> {
    pub(super) start: &'a Start,
    /// The events in the log. There are several entries if the process recovered under its old number, which the log
    /// counts as a new life.
    pub(super) lives: Vec<&'a Life>,
}

impl Stay<'_> {
    /// Returns the time at which the life first showed that it holds its group's state.
    pub(super) fn held(&self, log: &Log) -> Option<u64> {
        let times = |life: &&Life| {
            let delivered = life.deliveries.first().map(|delivery| log.deliveries[*delivery as usize].t);
            let ready = life.ready.first().map(|ready| ready.kept.event.t);
            [life.recovered.map(|recovered| recovered.t), delivered, ready].into_iter().flatten().min()
        };
        self.lives.iter().filter_map(times).min()
    }

    /// Returns the largest number after which the life resumed, from its records or its first delivery. Returns `None`
    /// if neither exists.
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
