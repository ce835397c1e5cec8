//! Violations of a liar, and their counters.

/// Violations that a liar performs. Otherwise it behaves as a correct process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// Sends one value to some processes and another to others.
    pub two_values: bool,
    /// Overwrites the broadcast buffer with another value.
    pub rewrite: bool,
    /// Breaks its queue pairs to chosen victims by writing outside its region, which must be refused.
    pub kill: bool,
    /// Writes half of a slot, and the rest later or never.
    pub half: bool,
    /// Writes records of old laps again.
    pub old_laps: bool,
    /// Exceeds the window that other processes have freed.
    pub overrun: bool,
    /// Shows registers at its own host that differ from what other processes wrote there, for its own stream.
    pub own_host: bool,
    /// Shows registers at its own host that differ from what other processes wrote there, for the streams of all
    /// senders.
    pub host: bool,
    /// Writes garbage into its registers: other values, different values at different hosts, and invalid records.
    pub garbage: bool,
    /// Leaves its registers torn and claims that it is reusing them.
    pub torn: bool,
    /// Shows old values of other senders as if they were of later laps.
    pub later_laps: bool,
    /// Writes the value of the next index into a slot, or omits an index.
    pub gap: bool,
    /// Writes values that exceed the agreed length.
    pub too_long: bool,
    /// Does nothing that a correct process does.
    pub silent: bool,
}

impl Lies {
    /// Names of all violations.
    pub const NAMES: [&str; 14] = [
        "two-values",
        "rewrite",
        "kill",
        "half",
        "old-laps",
        "overrun",
        "own-host",
        "host",
        "garbage",
        "torn",
        "later-laps",
        "gap",
        "too-long",
        "silent",
    ];

    /// Adds the violation with this name. Returns `None` if there is none.
    #[must_use]
    pub fn with(mut self, name: &str) -> Option<Self> {
        let lie = match name {
            "two-values" => &mut self.two_values,
            "rewrite" => &mut self.rewrite,
            "kill" => &mut self.kill,
            "half" => &mut self.half,
            "old-laps" => &mut self.old_laps,
            "overrun" => &mut self.overrun,
            "own-host" => &mut self.own_host,
            "host" => &mut self.host,
            "garbage" => &mut self.garbage,
            "torn" => &mut self.torn,
            "later-laps" => &mut self.later_laps,
            "gap" => &mut self.gap,
            "too-long" => &mut self.too_long,
            "silent" => &mut self.silent,
            _ => return None,
        };
        *lie = true;
        Some(self)
    }
}

/// Number of times that each violation was performed, in the order of [`Lies::NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told([u64; Lies::NAMES.len()]);

impl Told {
    /// Returns each counter with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Lies::NAMES.into_iter().zip(self.0)
    }

    /// Adds the counters of another liar.
    pub fn add(&mut self, other: &Told) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub(crate) fn once(&mut self, name: &str) {
        let place = Lies::NAMES.iter().position(|known| *known == name).expect("a name in `NAMES`");
        self.0[place] += 1;
    }
}
