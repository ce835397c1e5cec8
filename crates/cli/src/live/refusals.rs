//! Who was not let in, or did not let this process in.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor::runtime::Hosted;
use stentor_fabric::{ProcessId, Refusal};

use super::Repeats;
use crate::failure::Failure;

/// Who refuses for good has that long to be joined by the others before this process gives up: then all are named.
const JOINED: Duration = Duration::from_millis(500);

/// Whom a refusal is about, and why.
type Source = (Option<ProcessId>, Option<IpAddr>, String);

/// What was refused, each said once, and again after longer and longer pauses.
#[derive(Default)]
pub(crate) struct Refusals {
    repeats: Repeats<Source>,
    /// Peers that were started with something else, and why, in words.
    foreign: BTreeMap<ProcessId, String>,
    /// Since when there are some.
    since: Option<Instant>,
    /// The last one, in words.
    last: Option<String>,
}

impl Refusals {
    /// Takes what the fabric has to tell. `name` names processes; what is to be said goes to `say`.
    pub(crate) fn take<F: Hosted>(
        &mut self,
        fabric: &mut F,
        name: impl Fn(ProcessId) -> String,
        mut say: impl FnMut(&str),
    ) {
        while let Some(refusal) = fabric.next_refusal() {
            self.hear(&refusal, &name, &mut say);
        }
        if !self.foreign.is_empty() {
            self.foreign.retain(|peer, _| !fabric.sees(*peer));
        }
        if self.foreign.is_empty() {
            self.since = None;
        }
    }

    fn hear(&mut self, refusal: &Refusal, name: &impl Fn(ProcessId) -> String, say: &mut impl FnMut(&str)) {
        let now = Instant::now();
        let told = refusal.tell(name);
        // Who only says that it is a peer decides nothing here.
        if let Some(peer) = refusal.peer.filter(|_| refusal.lasting && refusal.certain) {
            self.foreign.insert(peer, told.clone());
            self.since.get_or_insert(now);
        }
        self.last = Some(told.clone());
        let source = (refusal.peer, refusal.at.map(|at| at.ip()), refusal.reason.clone());
        if let Some(times) = self.repeats.happened(source, now) {
            say(&format!("refused a connection: {told}{times}"));
        }
    }

    /// The last refusal, for whoever waits in vain.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// A peer was let in: what it is refused for later is new.
    pub(crate) fn is_there(&mut self, peer: ProcessId) {
        self.foreign.remove(&peer);
        self.repeats.is_over(|(who, ..)| *who == Some(peer));
    }

    /// Why this process cannot begin, if so many of these peers refuse it for good, and have for a moment. `place` is what
    /// the failure is about.
    pub(crate) fn final_word(
        &self,
        enough: usize,
        of: impl Fn(ProcessId) -> bool,
        place: &dyn std::fmt::Display,
    ) -> Option<Failure> {
        let foreign: Vec<_> = self.foreign.iter().filter(|(peer, _)| of(**peer)).map(|(_, why)| why.as_str()).collect();
        let is_settled = self.since.is_some_and(|since| since.elapsed() >= JOINED);
        if !is_settled || enough == 0 || foreign.len() < enough {
            return None;
        }
        let remedy =
            "waiting does not help: start this process and the others with the same key, configuration and release";
        Some(Failure::usage(foreign.join("; "), place, remedy))
    }
}
