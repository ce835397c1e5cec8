//! Refused connections and their reasons.

use core::net::SocketAddr;

use crate::ids::ProcessId;

/// A connection that this process or the other end refused or closed, for a reason that an operator should see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The process at the other end, if known.
    pub peer: Option<ProcessId>,
    /// Address of the other end, or `None` on fabrics without addresses. Without an address, the reason itself names
    /// the ends, unless `other` equals `peer`.
    pub at: Option<SocketAddr>,
    /// `true` if the other end uses the address of `peer` or has proved its identity. `false` if it only claims to be
    /// `peer`.
    pub certain: bool,
    /// The process that the reason is about, if the reason does not contain its name. If this process equals `peer` and
    /// there is no address, its name is printed before the reason. Else its name is printed after the reason.
    pub other: Option<ProcessId>,
    /// The reason, with the remedy.
    pub reason: String,
    /// `true` if the refusal repeats until one of the two processes is restarted with another key, configuration or
    /// release.
    pub lasting: bool,
}

impl Refusal {
    /// Returns the refusal as one line of text. `name` maps processes to their names.
    #[must_use]
    pub fn tell(&self, name: impl Fn(ProcessId) -> String) -> String {
        let who = match (self.peer, self.at) {
            (Some(peer), None) if self.other == self.peer => format!("{} ", name(peer)),
            (_, None) => String::new(),
            (Some(peer), Some(at)) if self.certain => format!("{} at {at}: ", name(peer)),
            (Some(peer), Some(at)) => format!("a process at {} that calls itself {}: ", at.ip(), name(peer)),
            (None, Some(at)) => format!("a process at {}: ", at.ip()),
        };
        let other = self.other.filter(|other| self.at.is_some() || self.peer != Some(*other));
        let other = other.map_or_else(String::new, |other| format!(" {}", name(other)));
        format!("{who}{}{other}", self.reason)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.tell(|process| process.to_string()))
    }
}

/// Returns the difference between two configurations with different fingerprints, as far as the numbers of their
/// processes show it, and the remedy. The files themselves are not compared over the network.
#[must_use]
pub fn differing_settings(mine: u16, theirs: u16) -> &'static str {
    if mine == theirs {
        "some of these settings differ: `fabric`, the kind of [election], [limits], [neb], the ids of groups and members; \
         `stentor config check` prints the fingerprint on each host; compare the files, and start both with the same cluster.toml"
    } else {
        "the number of members, or `clients` in [limits], differs; start both with the same cluster.toml"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_other_end_as_far_as_it_is_known() {
        let mut refusal = Refusal {
            peer: Some(ProcessId(1)),
            at: Some(SocketAddr::from(([127, 0, 0, 2], 7101))),
            certain: true,
            other: None,
            reason: "it has another key".to_owned(),
            lasting: true,
        };
        let tell = |refusal: &Refusal| refusal.tell(|process| format!("g1.{}", process.0 + 1));
        assert_eq!(tell(&refusal), "g1.2 at 127.0.0.2:7101: it has another key");
        refusal.certain = false;
        assert_eq!(tell(&refusal), "a process at 127.0.0.2 that calls itself g1.2: it has another key");
        (refusal.peer, refusal.other) = (None, Some(ProcessId(2)));
        assert_eq!(tell(&refusal), "a process at 127.0.0.2: it has another key g1.3");
        refusal.at = None;
        (refusal.peer, refusal.reason) = (refusal.other, "cannot be dialled".to_owned());
        assert_eq!(tell(&refusal), "g1.3 cannot be dialled");
        (refusal.peer, refusal.reason) = (None, "it has another key".to_owned());
        assert_eq!(refusal.to_string(), "it has another key p2");
    }
}
