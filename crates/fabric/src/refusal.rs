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
    /// Another process that the reason is about: it is named behind it.
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
            (_, None) => String::new(),
            (Some(peer), Some(at)) if self.certain => format!("{} at {at}: ", name(peer)),
            (Some(peer), Some(at)) => format!("a process at {} that calls itself {}: ", at.ip(), name(peer)),
            (None, Some(at)) => format!("a process at {}: ", at.ip()),
        };
        let other = self.other.map_or_else(String::new, |other| format!(" {}", name(other)));
        format!("{who}{}{other}", self.reason)
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.tell(|process| process.to_string()))
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
        assert_eq!(refusal.to_string(), "it has another key p2");
    }
}
