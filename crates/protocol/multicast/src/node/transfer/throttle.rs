//! Slows clients down while a receiver catches up.

/// The limit of the deliveries that a donor credits to clients until the next tick.
///
/// # States
/// *free* → *slowing* → *free*. Withheld credits are sent later, so no credit is lost.
/// - While the frozen state is sent, clients are slowed down once the backlog is half full. The bound falls in
///   proportion to the backlog's contents, from the previous rate to a configured share of it.
/// - Then the receiver consumes the backlog. If the backlog is fuller than [`BEHIND`], clients are slowed down until it
///   is empty: to half of the rate at which the receiver consumes, but not below the same share. A bound that only
///   followed the backlog would settle where deliveries and consumption are equal, and the receiver would never catch
///   up.
/// - Clients are not slowed down for a stalled receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::node) struct Throttle {
    /// Deliveries that may be credited until the next tick; `None` if there is no limit.
    budget: Option<u64>,
    /// Average number of deliveries per tick before clients were slowed down.
    usual: Average,
    /// Average number of deliveries that the receiver consumes per tick; `None` while it receives the frozen state.
    taken: Option<Average>,
    slowing: bool,
    /// The load at the last tick.
    last: Load,
}

/// The progress of a transfer in one tick, from which the limit follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::node) struct Load {
    /// Deliveries that the donor's application has made.
    pub(in crate::node) delivered: u64,
    /// Deliveries in the backlog.
    pub(in crate::node) waiting: u64,
    /// Fill level of the backlog, in thousandths.
    pub(in crate::node) fill: u64,
    /// `true` if the receiver has the frozen state.
    pub(in crate::node) drains: bool,
    /// `true` if the receiver makes progress.
    pub(in crate::node) heeds: bool,
}

/// Fill level of the backlog above which clients are slowed down while it is consumed, in thousandths.
const BEHIND: u64 = 30;

/// A moving average over about 64 ticks, in units of 1/1024.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Average(u64);

impl Average {
    fn add(&mut self, value: u64) {
        self.0 = self.0 - self.0 / 64 + value * 16;
    }

    /// Returns `thousandths` thousandths of the average.
    fn part(self, thousandths: u64) -> u64 {
        self.0 * thousandths / (1024 * 1000)
    }
}

impl Throttle {
    /// Restarts the throttle when a transfer begins, after `delivered` deliveries.
    pub(in crate::node) fn begin(&mut self, delivered: u64) {
        *self = Throttle { last: Load { delivered, ..Load::default() }, ..Throttle::default() };
    }

    /// Removes the limit when a transfer ends.
    pub(in crate::node) fn end(&mut self) {
        self.budget = None;
    }

    /// Updates the limit in a tick. `percent`: the minimum share of the usual rate.
    pub(in crate::node) fn tick(&mut self, load: Load, percent: u32) {
        let before = std::mem::replace(&mut self.last, load);
        let delivered = load.delivered.saturating_sub(before.delivered);
        if load.drains {
            // The initial estimate is high, so that clients are not slowed down before the receiver is known to consume
            // less.
            let taken = self.taken.get_or_insert(Average(self.usual.0 * 2));
            taken.add((before.waiting + delivered).saturating_sub(load.waiting));
        }
        let from = if load.drains { BEHIND } else { 500 };
        self.slowing = load.fill > from || self.slowing && load.drains && load.waiting > 0;
        if !self.slowing || !load.heeds {
            self.usual.add(delivered);
            self.budget = None;
            return;
        }
        let least = u64::from(percent.min(100)) * 10;
        let bound = match self.taken {
            Some(taken) => taken.part(500).max(self.usual.part(least)),
            None => self.usual.part(1000 - (load.fill.min(1000) - 500) * 2 * (1000 - least) / 1000),
        };
        self.budget = Some(bound.max(1));
    }

    /// Returns the deliveries that may be credited until the next tick; `None` if there is no limit.
    #[inline]
    pub(in crate::node) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Subtracts `deliveries` from the budget.
    #[inline]
    pub(in crate::node) fn spend(&mut self, deliveries: u64) {
        if let Some(budget) = &mut self.budget {
            *budget = budget.saturating_sub(deliveries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a throttle that has seen 1000 deliveries in each tick, and is at the end of the frozen state.
    fn usual() -> Throttle {
        let mut throttle = Throttle::default();
        throttle.begin(0);
        for tick in 1..=600 {
            let load = Load { delivered: tick * 1000, fill: 100, heeds: true, ..Load::default() };
            throttle.tick(load, 25);
            throttle.spend(u64::MAX);
            assert_eq!(throttle.budget(), None, "below one half there is no bound");
        }
        throttle
    }

    #[test]
    fn the_bound_falls_from_the_usual_rate_to_the_share() {
        let mut throttle = usual();
        let mut last = u64::MAX;
        let load = Load { delivered: 600_000, heeds: true, ..Load::default() };
        for (fill, least) in [(501, 950), (750, 600), (1000, 230)] {
            throttle.tick(Load { fill, ..load }, 25);
            let budget = throttle.budget.expect("a bound");
            assert!(budget < last && budget >= least, "{fill}: {budget}");
            last = budget;
        }
        assert!(last <= 250, "{last}");
        throttle.spend(last - 1);
        assert_eq!(throttle.budget(), Some(1));
        throttle.spend(2);
        assert_eq!(throttle.budget(), Some(0));
        throttle.tick(Load { fill: 1000, heeds: false, ..load }, 25);
        assert!(throttle.budget.is_none(), "a stalled receiver slows no client down");
    }

    /// Returns the number of ticks until the backlog is empty, if the receiver consumes `taken` deliveries per tick and
    /// clients send 1000 unless limited.
    fn catches_up(taken: u64, percent: u32) -> Option<u64> {
        let mut throttle = usual();
        let (mut delivered, mut waiting) = (600_000, 50_000);
        (0..10_000).find(|_| {
            waiting -= taken.min(waiting);
            let sent = throttle.budget().unwrap_or(u64::MAX).min(1000);
            (delivered, waiting) = (delivered + sent, waiting + if waiting > 0 { sent } else { 0 });
            let fill = waiting / 1000;
            throttle.tick(Load { delivered, waiting, fill, drains: true, heeds: true }, percent);
            waiting == 0
        })
    }

    #[test]
    fn receiver_catches_up_at_any_rate_above_the_share() {
        for taken in [300, 400, 600, 900, 1000, 1100, 3000] {
            let ticks = catches_up(taken, 25).unwrap_or_else(|| panic!("{taken} per tick: never"));
            assert!(ticks <= 2500, "{taken} per tick: {ticks}");
        }
        assert_eq!(catches_up(240, 25), None, "clients keep their share");
        assert!(catches_up(240, 10).is_some());
    }

    #[test]
    fn fast_receiver_slows_no_client_down() {
        let mut throttle = usual();
        let mut waiting = 500_000;
        for tick in 601..700 {
            waiting -= 4000;
            throttle.tick(Load { delivered: tick * 1000, waiting, fill: 500, drains: true, heeds: true }, 25);
            assert!(throttle.budget().is_none_or(|budget| budget >= 950), "{throttle:?}");
        }
    }

    #[test]
    fn short_backlog_slows_no_client_down() {
        let mut throttle = usual();
        for tick in 601..700 {
            let load = Load { delivered: tick * 1000, waiting: 900, fill: 29, drains: true, heeds: true };
            throttle.tick(load, 25);
            assert_eq!(throttle.budget(), None);
        }
    }
}
