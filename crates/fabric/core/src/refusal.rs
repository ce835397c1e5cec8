//! A connection that was not made, and why.

use core::net::SocketAddr;

use crate::ids::ProcessId;

/// A connection that was refused here or by the other end, or was closed, for a reason that somebody should hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The other end, if it is known who it is.
    pub peer: Option<ProcessId>,
    /// Its address. `None` where processes have none: then the reason names both.
    pub at: Option<SocketAddr>,
    /// Whether it is at that peer's address, or has shown who it is; else it only says so.
    pub certain: bool,
    /// Another process that the reason is about: it is named behind it. Without an address it may be the other end itself: then it is
    /// named before the reason, which has no name.
    pub other: Option<ProcessId>,
    /// Why, with the remedy.
    pub reason: String,
    /// Whether it will be refused again until one of the two is started with something else: a key, a configuration, a
    /// release.
    pub lasting: bool,
}

impl Refusal {
    /// Says it in one line. `name` names processes.
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

/// Says in what two configurations with different fingerprints differ, as far as the numbers of their processes tell, and what to
/// do. The files themselves are not compared over the network.
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
    fn who_is_refused_is_named_as_well_as_it_is_known() {
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
