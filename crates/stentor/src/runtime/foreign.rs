//! Peers that refuse this process until one of the two is started with another key, configuration or release.
//!
//! # Invariants
//! - Only a peer that has proved its identity, or that uses its configured address, is noted. Others must not decide
//!   whether this process ends.
//! - A peer that is connected is not noted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stentor_fabric::{ProcessId, Refusal};

use super::{FabricDiagnostics, and};

/// Shortest time between the first refusal and a decision because of it. The decision also names the peers that refuse
/// this process within this time.
const SETTLED: Duration = Duration::from_millis(500);

/// A peer that refuses this process.
#[derive(Debug)]
struct Foreign {
    /// The peer and its address.
    who: String,
    reason: String,
}

/// The peers that refuse this process until one of the two is started differently.
#[derive(Debug, Default)]
pub struct ForeignPeers {
    peers: BTreeMap<ProcessId, Foreign>,
    /// Time of the first refusal in `peers`.
    since: Option<Instant>,
}

impl ForeignPeers {
    /// The remedy for such a refusal.
    pub const REMEDY: &'static str =
        "waiting does not help: start this process and the others with the same key, configuration and release";

    /// Returns whether a refusal is one that is noted.
    #[must_use]
    pub fn decides(refusal: &Refusal) -> bool {
        refusal.lasting && refusal.certain && refusal.peer.is_some()
    }

    /// Notes the refusal if it is one that [decides](ForeignPeers::decides). `told` is its text.
    pub fn note(&mut self, refusal: &Refusal, told: &str, now: Instant) {
        if let Some(peer) = refusal.peer.filter(|_| ForeignPeers::decides(refusal)) {
            let (who, reason) = told.split_at(told.find(&refusal.reason).unwrap_or(0));
            let (who, reason) = (who.trim_end_matches([':', ' ']).to_owned(), reason.to_owned());
            self.peers.insert(peer, Foreign { who, reason });
            self.since.get_or_insert(now);
        }
    }

    /// Removes the peers that are connected.
    pub fn update<F: FabricDiagnostics>(&mut self, fabric: &F) {
        if !self.peers.is_empty() {
            self.peers.retain(|peer, _| !fabric.sees(*peer));
        }
        if self.peers.is_empty() {
            self.since = None;
        }
    }

    /// Removes a peer that is connected.
    pub fn remove(&mut self, peer: ProcessId) {
        self.peers.remove(&peer);
    }

    /// Returns how long ago the first refusal of the present ones was noted.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.since.map(|since| now.saturating_duration_since(since))
    }

    /// Returns whether enough time has passed since the first refusal for a decision.
    #[must_use]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.age(now).is_some_and(|age| age >= SETTLED)
    }

    /// Returns the peers with their reasons if at least `enough` of the peers selected by `of` refuse this process.
    #[must_use]
    pub fn verdict(&self, enough: usize, of: impl Fn(ProcessId) -> bool) -> Option<String> {
        let foreign: Vec<_> = self.peers.iter().filter(|(peer, _)| of(**peer)).map(|(_, foreign)| foreign).collect();
        (enough > 0 && foreign.len() >= enough).then(|| all_of(&foreign))
    }
}

/// Returns the peers, grouped by reason.
fn all_of(foreign: &[&Foreign]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for Foreign { who, reason } in foreign {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, all)) => all.push(who),
            None => reasons.push((reason, vec![who])),
        }
    }
    let text = |(reason, who): (&str, Vec<&str>)| match (who.as_slice(), reason.strip_prefix("it has ")) {
        ([_, _, ..], Some(rest)) => format!("{}: they have {rest}", and(&who)),
        ([""], _) => reason.to_owned(),
        _ => format!("{}: {reason}", and(&who)),
    };
    reasons.into_iter().map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(peer: Option<u16>, reason: &str) -> Refusal {
        let at = Some("127.0.0.1:7101".parse().expect("an address"));
        let peer = peer.map(ProcessId);
        Refusal { peer, at, certain: true, other: None, reason: reason.to_owned(), lasting: true }
    }

    fn note(peers: &mut ForeignPeers, refusal: &Refusal, now: Instant) {
        peers.note(refusal, &refusal.to_string(), now);
    }

    #[test]
    fn peers_with_one_reason_are_named_together() {
        let (mut peers, now) = (ForeignPeers::default(), Instant::now());
        note(&mut peers, &refusal(Some(1), "it has another key"), now);
        note(&mut peers, &refusal(Some(3), "it has another key"), now + Duration::from_millis(100));
        note(&mut peers, &refusal(Some(2), "it runs another release"), now);
        assert!(!peers.is_settled(now + SETTLED - Duration::from_millis(1)) && peers.is_settled(now + SETTLED));
        let verdict = peers.verdict(3, |_| true).expect("three refuse");
        assert_eq!(
            verdict,
            "p1 at 127.0.0.1:7101 and p3 at 127.0.0.1:7101: they have another key; p2 at 127.0.0.1:7101: it runs \
             another release"
        );
        assert_eq!(peers.verdict(2, |peer| peer.0 < 2), None, "only one of those refuses");
        peers.remove(ProcessId(1));
        assert_eq!(peers.verdict(3, |_| true), None);
        assert_eq!(ForeignPeers::default().verdict(0, |_| true), None, "nobody refuses");
    }

    #[test]
    fn only_lasting_refusals_of_proved_peers_are_noted() {
        let (mut peers, now) = (ForeignPeers::default(), Instant::now());
        let lasting = refusal(Some(1), "it has another key");
        for harmless in [
            Refusal { certain: false, ..lasting.clone() },
            Refusal { lasting: false, ..lasting.clone() },
            Refusal { peer: None, ..lasting.clone() },
        ] {
            assert!(!ForeignPeers::decides(&harmless));
            note(&mut peers, &harmless, now);
            assert_eq!((peers.age(now), peers.verdict(1, |_| true)), (None, None), "{harmless:?}");
        }
        note(&mut peers, &lasting, now);
        assert_eq!(peers.age(now + SETTLED), Some(SETTLED));
    }
}
