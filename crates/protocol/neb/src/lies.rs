//! Violations of a liar, and their counters.

/// Violations that a liar performs. Otherwise it behaves as a correct process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// `true` to send one value to some processes and another value to the others.
    pub two_values: bool,
    /// `true` to overwrite the broadcast buffer with another value.
    pub rewrite: bool,
    /// `true` to write outside the liar's region at chosen victims. The fabric must refuse this, which breaks the queue
    /// pair.
    pub kill: bool,
    /// `true` to write half of a slot, and the rest later or never.
    pub half: bool,
    /// `true` to write records of old laps again.
    pub old_laps: bool,
    /// `true` to exceed the window that other processes have freed.
    pub overrun: bool,
    /// `true` to show registers at the liar's host that differ from what other processes wrote there, for the liar's
    /// stream.
    pub own_host: bool,
    /// `true` to show registers at the liar's host that differ from what other processes wrote there, for the streams
    /// of all senders.
    pub host: bool,
    /// `true` to write garbage into the liar's registers: other values, different values at different hosts, and
    /// invalid records.
    pub garbage: bool,
    /// `true` to leave the liar's registers torn, and to claim that the liar is reusing them.
    pub torn: bool,
    /// `true` to show old values of other senders as if they were of later laps.
    pub later_laps: bool,
    /// `true` to write the value of the next index into a slot, or to omit an index.
    pub gap: bool,
    /// `true` to write values that exceed the agreed length.
    pub too_long: bool,
    /// `true` to publish, read, deliver and free nothing. The liar still sends its own values.
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
