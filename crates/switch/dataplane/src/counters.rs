//! Counts of passes, by the cause that ended them.

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)+) => {
        /// The outcome of a pass. Each pass is counted under exactly one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Cause {
            $($(#[$doc])* $name,)+
        }

        impl Cause {
            /// All causes.
            pub const ALL: &'static [Cause] = &[$(Cause::$name),+];

            /// Returns the name that reports use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Cause::$name => $text),+ }
            }
        }
    };
}

causes! {
    /// The packet is not for this switch and is forwarded as usual.
    Plain = "plain";
    /// Dropped: a packet to the switch that is not RoCEv2, or a packet without a complete IP header.
    Malformed = "malformed";
    /// Dropped: the ICRC is wrong. The switch checks the ICRC of data only with
    /// [`check_data`](crate::Config::check_data).
    Damaged = "damaged";
    /// Dropped: the set does not exist, or is silent.
    UnknownSet = "unknown-set";
    /// Dropped: the rank does not exist, or the source address is not that of the rank.
    WrongSource = "wrong-source";
    /// Dropped: no queue pair of a set sends this operation.
    WrongOpcode = "wrong-opcode";
    /// Dropped: the time to live has expired.
    Expired = "expired";
    /// The switch sent a copy to a receiver.
    Copied = "copied";
    /// The switch sent no copy because the receiver has acknowledged this packet.
    Suppressed = "suppressed";
    /// The switch sent no copy to a receiver because it has not sent that receiver an earlier packet.
    Gap = "gap";
    /// A sender repeated a packet that is done, or a member repeated its answer. The switch acknowledged again.
    Again = "again";
    /// The switch sent the sender of a data packet a NAK because an earlier packet is missing.
    Complained = "complained";
    /// Dropped: the holder's data cannot be replicated yet, and the switch has already sent the holder a NAK.
    Quiet = "quiet";
    /// The sender of a data packet does not hold the set.
    NotHolder = "not-holder";
    /// A data packet arrived while the switch was executing the control packet of its session.
    TooEarly = "too-early";
    /// A control packet is valid and passes through the loop.
    ControlTaken = "control-taken";
    /// A pass linked one member, but not the last.
    Linked = "linked";
    /// A pass linked the last member, so the member list took effect.
    Began = "began";
    /// A rank released the set, or the switch acknowledged a control packet that only advances its sender's done PSN.
    Released = "released";
    /// A control packet has to wait because another rank holds the set, or because the set changed between its passes.
    Busy = "busy";
    /// A control packet has to wait because a packet before it is not acknowledged yet.
    Barrier = "barrier";
    /// A control packet arrived while an earlier packet is missing.
    Missing = "missing";
    /// Refused: the control packet is invalid.
    BadControl = "bad-control";
    /// Refused: the holder's control packet names another session.
    WrongLock = "wrong-lock";
    /// Refused or dropped: a READ, an atomic or an invalidation.
    Invalid = "invalid";
    /// Refused: the set is poisoned.
    Poisoned = "poisoned";
    /// The pass poisoned the set.
    Poisons = "poisons";
    /// Dropped: the pass belongs to an epoch or an execution that has ended.
    Stale = "stale";
    /// The switch recorded an answer and sent nothing to the holder.
    Noted = "noted";
    /// All members acknowledged more than before, and the switch acknowledged that to the holder.
    Acknowledged = "acknowledged";
    /// A member answered negatively, and the switch informs the holder. If the member's queue pair is broken, a second
    /// pass does so.
    Refused = "refused";
    /// Dropped: an answer from a non-member, of another epoch, while the set is not active, for a PSN that was never
    /// sent, or with a reserved syndrome.
    Foreign = "foreign";
    /// The switch sent a congestion notification to the holder.
    Notified = "notified";
    /// Dropped: a congestion notification too soon after another one.
    Thinned = "thinned";
}

/// Number of passes for each cause.
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

    /// Returns the number of passes that ended with this cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns name and count of every cause that occurred.
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
