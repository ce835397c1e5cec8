//! How much clients are slowed down while a receiver catches up.

/// The most deliveries that a donor credits to clients until the next tick.
///
/// Below half of the backlog there is no bound. From there on the bound falls, in proportion to what the backlog holds, from
/// the rate before to a configured share of it. What is not credited is credited later: nothing is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::node) struct Throttle {
    /// Deliveries that may be credited until the next tick; `None`: any number.
    budget: Option<u64>,
    /// Deliveries of a tick before clients were slowed down, in 16ths.
    usual: u64,
    /// Deliveries at the last tick.
    delivered: u64,
}

impl Throttle {
    /// Begins with a transfer, at so many deliveries.
    pub(in crate::node) fn begin(&mut self, delivered: u64) {
        *self = Throttle { budget: None, usual: 0, delivered };
    }

    /// Ends with a transfer.
    pub(in crate::node) fn end(&mut self) {
        self.budget = None;
    }

    /// A tick passes, at so many deliveries. `fill`: how full the backlog is, in thousandths. `percent`: the share that is
    /// left of the usual rate when it is full. `heeds`: the receiver makes progress.
    pub(in crate::node) fn tick(&mut self, delivered: u64, fill: u64, percent: u32, heeds: bool) {
        let now = delivered.saturating_sub(self.delivered) * 16;
        self.delivered = delivered;
        if fill <= 500 || !heeds {
            self.usual = (self.usual * 7 + now) / 8;
            self.budget = None;
            return;
        }
        let slowed = (fill.min(1000) - 500) * 2;
        let share = 1000 - slowed * (100 - u64::from(percent.min(100))) / 100;
        self.budget = Some((self.usual * share / 16_000).max(1));
    }

    /// Whether nothing more is to be credited until the next tick.
    #[inline]
    pub(in crate::node) fn is_exhausted(&self) -> bool {
        self.budget == Some(0)
    }

    /// So many deliveries were credited.
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

    #[test]
    fn the_bound_falls_from_the_usual_rate_to_the_share() {
        let mut throttle = Throttle::default();
        throttle.begin(0);
        for tick in 1..=100 {
            throttle.tick(tick * 1000, 100, 25, true);
            throttle.spend(u64::MAX);
            assert!(!throttle.is_exhausted(), "below one half there is no bound");
        }
        let mut last = u64::MAX;
        for (fill, least) in [(501, 950), (750, 600), (1000, 230)] {
            throttle.tick(100_000, fill, 25, true);
            let budget = throttle.budget.expect("a bound");
            assert!(budget < last && budget >= least, "{fill}: {budget}");
            last = budget;
        }
        assert!(last <= 250, "{last}");
        throttle.spend(last);
        assert!(throttle.is_exhausted());
        throttle.tick(100_000, 1000, 25, false);
        assert!(throttle.budget.is_none(), "nobody is slowed down for a receiver that stands still");
    }
}
