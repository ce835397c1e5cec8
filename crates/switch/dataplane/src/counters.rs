//! What became of packets, by cause.

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        /// What became of a packet in a pass. Each pass counts under exactly one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Cause {
            $($(#[$doc])* $name,)+
        }

        impl Cause {
            /// All of them.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),+];

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$name => $text),+ }
            }
        }
    };
}

causes! {
    /// Not for this switch: goes its usual way.
    Plain = "plain";
    /// Dropped: not a RoCEv2 packet over IPv4.
    Malformed = "malformed";
    /// Dropped: a control packet or an answer whose ICRC is wrong.
    Damaged = "damaged";
    /// Dropped: no such set, or it is silent.
    UnknownSet = "unknown-set";
    /// Dropped: no such rank, or from another address than that rank has.
    WrongSource = "wrong-source";
    /// Dropped: an operation that no queue pair of a set sends.
    WrongOpcode = "wrong-opcode";
    /// Dropped: its time to live is over.
    Expired = "expired";
    /// A copy left for a receiver.
    Copied = "copied";
    /// No copy: the receiver has acknowledged this packet.
    Suppressed = "suppressed";
    /// No copy: something before it did not reach this receiver, or nobody.
    Gap = "gap";
    /// Done already: acknowledged again.
    Again = "again";
    /// The holder was told that something is missing.
    Complained = "complained";
    /// Dropped: something is missing, and the holder knows.
    Quiet = "quiet";
    /// Data of a rank that does not hold the set.
    NotHolder = "not-holder";
    /// Data while a control packet is being carried out.
    TooEarly = "too-early";
    /// A control packet is in order, and goes through the loop.
    ControlTaken = "control-taken";
    /// One member was linked.
    Linked = "linked";
    /// The last member was linked: the session began.
    Began = "began";
    /// The set was released, or a control packet that changes nothing was acknowledged.
    Released = "released";
    /// A control packet waits: another rank holds the set.
    Busy = "busy";
    /// A control packet waits: not everything before it is acknowledged.
    Barrier = "barrier";
    /// A control packet came before what is missing.
    Missing = "missing";
    /// Refused: a control packet that is wrong in itself.
    BadControl = "bad-control";
    /// Refused: the holder's control packet names another session.
    WrongLock = "wrong-lock";
    /// Refused: READs, atomics, invalidations.
    Invalid = "invalid";
    /// Refused: the set is poisoned.
    Poisoned = "poisoned";
    /// The set was poisoned.
    Poisons = "poisons";
    /// Discarded: a pass of what is over.
    Stale = "stale";
    /// An answer was taken in, and the holder need not know.
    Noted = "noted";
    /// All members have more than before: acknowledged.
    Acknowledged = "acknowledged";
    /// A member's refusal went to the holder.
    Refused = "refused";
    /// Dropped: an answer of who is no member, of another epoch, or about what was never sent.
    Foreign = "foreign";
    /// A congestion notification went to the holder.
    Notified = "notified";
    /// Dropped: a congestion notification too soon after another.
    Thinned = "thinned";
}

/// Packets by cause.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Counters([u64; Cause::ALL.len()]);

impl Default for Counters {
    fn default() -> Counters {
        Counters([0; Cause::ALL.len()])
    }
}

impl Counters {
    #[inline]
    pub(crate) fn count(&mut self, cause: Cause) {
        self.0[cause as usize] += 1;
    }

    /// How many passes ended so.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Names and counts of what happened at all.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Cause::ALL.iter().map(|cause| (cause.name(), self.of(*cause))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_counted_apart_and_listed_by_name() {
        let mut counters = Counters::default();
        assert_eq!(counters.list().count(), 0);
        for (n, cause) in Cause::ALL.iter().enumerate() {
            (0..=n).for_each(|_| counters.count(*cause));
        }
        for (n, cause) in Cause::ALL.iter().enumerate() {
            assert_eq!(counters.of(*cause), n as u64 + 1, "{}", cause.name());
        }
        let listed: Vec<_> = counters.list().collect();
        assert_eq!(listed.len(), Cause::ALL.len());
        assert_eq!((listed[0], listed[7]), (("plain", 1), ("copied", 8)));
    }
}
