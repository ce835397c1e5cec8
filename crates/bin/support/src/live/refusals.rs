//! Refused connections: peers that this process refused, and peers that refused it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor::runtime::{FabricDiagnostics, ForeignPeers};
use stentor_fabric::{ProcessId, Refusal};

use super::Repeats;
use crate::Failure;

/// The peer, the address and the reason of a refusal.
type Source = (Option<ProcessId>, Option<IpAddr>, String);

/// Longest reason that a later report contains in full, in bytes. If a reason is longer, a later report contains only
/// its first part.
const BRIEF: usize = 100;
/// Longest time for which a refusal that may end this process is held back. If the process ends, its error contains the
/// reason, too.
const KEPT_BACK: Duration = Duration::from_secs(2);

/// The refused connections that this process reports: those that it refused, and those that peers refused. Each refusal
/// is reported once, and its repetitions after pauses that double.
#[derive(Default)]
pub struct Refusals {
    repeats: Repeats<Source>,
    foreign: ForeignPeers,
    /// Reports that are held back, because the process may end with an error that contains them.
    kept_back: Vec<String>,
    /// `true` if reports are no longer held back, because a peer has accepted this process, or because the refusals
    /// were not enough to end it.
    goes_on: bool,
    /// Description of the last refusal.
    last: Option<String>,
    /// The last refusal of each peer that is not connected.
    last_of: BTreeMap<ProcessId, (Instant, String)>,
    /// Description of this process's key.
    key: Option<String>,
}

impl Refusals {
    /// Returns refusals that name the key of this process beside each refusal because of a key.
    pub fn with_key(key: Option<String>) -> Self {
        Refusals { key, ..Refusals::default() }
    }

    /// Takes the refusals of the fabric. `name` returns the name of a process, and `say` receives the reports.
    pub fn take<F: FabricDiagnostics>(
        &mut self,
        fabric: &mut F,
        name: impl Fn(ProcessId) -> String,
        mut say: impl FnMut(&str),
    ) {
        while let Some(refusal) = fabric.next_refusal() {
            self.hear(&refusal, &name, &mut say);
        }
        self.foreign.update(fabric);
        self.let_go(&mut say);
    }

    /// Makes the reports that were held back, once the process continues nevertheless, or after [`KEPT_BACK`].
    fn let_go(&mut self, say: &mut impl FnMut(&str)) {
        if self.goes_on || self.foreign.age(Instant::now()).is_none_or(|age| age >= KEPT_BACK) {
            self.kept_back.drain(..).for_each(|text| say(&text));
        }
    }

    fn hear(&mut self, refusal: &Refusal, name: &impl Fn(ProcessId) -> String, say: &mut impl FnMut(&str)) {
        let now = Instant::now();
        let told = self.with_own_key(refusal.tell(name));
        if let Some(peer) = refusal.peer {
            self.last_of.insert(peer, (now, brief(&refusal.reason).to_owned()));
        }
        self.foreign.note(refusal, &told, now);
        self.last = Some(told.clone());
        let source = (refusal.peer, refusal.at.map(|at| at.ip()), refusal.reason.clone());
        if let Some(times) = self.repeats.happened(source, now) {
            let text = format!("refused a connection: {told}{times}");
            if ForeignPeers::decides(refusal) && !self.goes_on { self.kept_back.push(text) } else { say(&text) }
        }
    }

    fn with_own_key(&self, mut told: String) -> String {
        if let Some(key) = self.key.as_ref().filter(|_| told.contains("another key")) {
            told += &format!(" (this process has {key})");
        }
        told
    }

    /// Returns the last refusal, for the error of a process that waits in vain.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Returns when and why a connection with a missing peer was refused last, in either direction.
    pub fn last_of(&self, peer: ProcessId, now: Instant) -> Option<String> {
        let (at, reason) = self.last_of.get(&peer)?;
        Some(format!("was refused {} s ago: {reason}", now.saturating_duration_since(*at).as_secs()))
    }

    /// Records that a peer is connected. A later refusal of it is reported at once.
    pub fn is_there(&mut self, peer: ProcessId) {
        self.goes_on = true;
        self.foreign.remove(peer);
        self.last_of.remove(&peer);
        self.repeats.is_over(|(who, ..)| *who == Some(peer));
    }

    /// Returns the failure that ends this process if at least `enough` of the peers selected by `of` refuse it until one
    /// of the two is started differently, and time enough has passed since the first of these refusals. `place` is what
    /// the failure is about.
    pub fn final_word(
        &mut self,
        enough: usize,
        of: impl Fn(ProcessId) -> bool,
        place: &dyn std::fmt::Display,
    ) -> Option<Failure> {
        self.decide(Instant::now(), enough, of, place)
    }

    fn decide(
        &mut self,
        now: Instant,
        enough: usize,
        of: impl Fn(ProcessId) -> bool,
        place: &dyn std::fmt::Display,
    ) -> Option<Failure> {
        if !self.foreign.is_settled(now) {
            return None;
        }
        let verdict = self.foreign.verdict(enough, of);
        self.goes_on |= verdict.is_none();
        verdict.map(|what| Failure::usage(what, place, ForeignPeers::REMEDY))
    }
}

/// Returns the first part of a long reason, which names the problem. The rest is the remedy.
fn brief(reason: &str) -> &str {
    if reason.len() <= BRIEF { reason } else { reason.split(": ").next().unwrap_or(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(peer: u16, reason: &str) -> Refusal {
        let (peer, at) = (Some(ProcessId(peer)), Some("127.0.0.1:7101".parse().unwrap()));
        Refusal { peer, at, certain: true, other: None, reason: reason.to_owned(), lasting: true }
    }

    fn hear(refusals: &mut Refusals, refusal: &Refusal) -> Vec<String> {
        let mut said = Vec::new();
        refusals.hear(refusal, &|process| process.to_string(), &mut |text: &str| said.push(text.to_owned()));
        said
    }

    const LONG: &str = "it has configuration A, this process has B: some of these settings differ: `fabric`, the kind of \
                        [election], [limits], [neb], the ids of groups and members";

    #[test]
    fn final_refusals_are_reported_once_and_harmless_ones_at_once() {
        let mut refusals = Refusals::default();
        let [one, two] = [1, 2].map(|peer| refused(peer, LONG));
        assert_eq!((hear(&mut refusals, &one), hear(&mut refusals, &two)), (vec![], vec![]));
        assert!(refusals.final_word(2, |_| true, &"g1.3").is_none(), "others may refuse it, too");
        let later = Instant::now() + Duration::from_secs(1);
        let failure = refusals.decide(later, 2, |_| true, &"g1.3").expect("both members refuse");
        assert!(failure.what.starts_with("p1 at 127.0.0.1:7101 and p2 at 127.0.0.1:7101: they have configuration A"));
        assert_eq!(failure.what.matches("some of these settings differ").count(), 1, "{}", failure.what);
        // Two refusals are not enough, so the process continues and the refusals are reported.
        assert!(refusals.decide(later, 3, |_| true, &"g1.3").is_none());
        let mut said = Vec::new();
        refusals.let_go(&mut |text: &str| said.push(text.to_owned()));
        assert_eq!(said.len(), 2);
        assert_eq!(hear(&mut refusals, &refused(3, LONG)).len(), 1);
    }

    #[test]
    fn reason_of_a_missing_peer_is_kept_until_it_connects() {
        let mut refusals = Refusals::default();
        hear(&mut refusals, &refused(1, LONG));
        let later = Instant::now() + Duration::from_secs(153);
        let why = refusals.last_of(ProcessId(1), later).unwrap();
        assert_eq!(why, "was refused 153 s ago: it has configuration A, this process has B");
        refusals.is_there(ProcessId(1));
        assert_eq!(refusals.last_of(ProcessId(1), later), None);
    }

    #[test]
    fn refusals_because_of_a_key_name_the_own_key() {
        let mut refusals = Refusals::with_key(Some("key file old.key (fingerprint 12ab34cd)".to_owned()));
        refusals.goes_on = true;
        let said = hear(&mut refusals, &refused(1, "it has another key than this process: give all the same"));
        assert!(said[0].ends_with("the same (this process has key file old.key (fingerprint 12ab34cd))"), "{said:?}");
        assert!(!hear(&mut refusals, &refused(2, "it has another release"))[0].contains("old.key"));
    }
}
