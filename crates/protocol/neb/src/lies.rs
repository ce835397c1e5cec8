//! What a liar may do, and how often it did.

/// What a liar does. What is not said here it does as a correct process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// Sends one value to some and another to others.
    pub two_values: bool,
    /// Writes the broadcast buffer again, with another value.
    pub rewrite: bool,
    /// Breaks its queue pairs to chosen victims, by writing outside its region: that must be refused.
    pub kill: bool,
    /// Writes half a slot, and the rest later or never.
    pub half: bool,
    /// Writes records of old laps again.
    pub old_laps: bool,
    /// Runs ahead of what others have freed.
    pub overrun: bool,
    /// Shows other registers at its own host than were written there, for its own stream.
    pub own_host: bool,
    /// The same for everybody's streams.
    pub host: bool,
    /// Writes garbage into its registers: other values, other things at other hosts, no values at all.
    pub garbage: bool,
    /// Leaves its registers torn and says that it is using them again.
    pub torn: bool,
    /// Shows old values of others as if they were of later laps.
    pub later_laps: bool,
    /// Writes what belongs to the next index in the place of one, or leaves one out.
    pub gap: bool,
    /// Writes values that are longer than agreed.
    pub too_long: bool,
    /// Does nothing of what a correct process does.
    pub silent: bool,
}

impl Lies {
    /// The names of all lies.
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

    /// The same with the lie of this name; `None` if there is none.
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

/// How often each lie was told, by [`Lies::NAMES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told([u64; Lies::NAMES.len()]);

impl Told {
    /// Each with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Lies::NAMES.into_iter().zip(self.0)
    }

    /// Adds what another told.
    pub fn add(&mut self, other: &Told) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub(crate) fn once(&mut self, name: &str) {
        let place = Lies::NAMES.iter().position(|known| *known == name).expect("a lie that has a name");
        self.0[place] += 1;
    }
}
