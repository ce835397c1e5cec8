//! The part of a removal that runs in each process of the broadcast. It answers requests of operators between two
//! rounds.

use stentor::operator::{Asks, Control};
use stentor_fabric::{Fabric, Waker};
use stentor_host::Beside;
use stentor_neb::{Node, Notice};
use stentor_support::Failure;

use super::words::{Answer, Question};

/// The control socket on which a process of the broadcast listens for operators.
pub(crate) struct Listening {
    control: Control<Question>,
    /// Fingerprint of the configuration.
    fingerprint: u64,
}

impl Listening {
    /// Listens beside the process's socket. `waker` wakes the process's fabric.
    pub(crate) fn at(at: &Beside, fingerprint: u64, waker: Waker) -> Result<Self, Failure> {
        let control = Control::listen(at, move || waker.wake()).map_err(|error| {
            let what = format_args!("cannot listen for `stentor neb remove`: {error}");
            let remedy = "raise the limits of open files and threads, or choose another directory";
            Failure::run(what, at.path().display(), remedy)
        })?;
        Ok(Listening { control, fingerprint })
    }

    /// Answers the next request, and passes the node's notices to `notify`. Returns whether there was a request.
    pub(crate) fn round<F: Fabric, N: FnMut(Notice<'_>)>(&self, node: &mut Node<F>, notify: &mut N) -> bool {
        let Some(asked) = self.control.next() else { return false };
        let answer = answer(&asked.question, self.fingerprint, node, notify);
        asked.answer(answer);
        true
    }
}

/// Returns the answer to a question. A fence reads the last values of the processes that it cuts off, so it may be the
/// first to find a breach of the protocol. `notify` receives the notice of it, which no later round repeats.
fn answer<F: Fabric, N: FnMut(Notice<'_>)>(
    question: &Question,
    own_fingerprint: u64,
    node: &mut Node<F>,
    notify: &mut N,
) -> Answer {
    let Question { fingerprint, ask } = question;
    if *fingerprint != own_fingerprint {
        return Question::refuse("it was started with another configuration".to_owned());
    }
    Answer::of(node.ask(&ask.meant(), notify))
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;
    use stentor_fabric_sim::{NetworkModel, SimConfig, World};
    use stentor_neb::removal::{self, Ballot};
    use stentor_neb::{Config, Liar, Lies, Mode, ProcessSet};

    use super::super::words::Ask;
    use super::*;

    const LIAR: ProcessId = ProcessId(1);
    const FINGERPRINT: u64 = 7;

    /// Returns a node with an unread value of the liar that is too long.
    fn with_unread_breach(world: &World) -> Node<stentor_fabric_sim::SimFabric> {
        let config = Config { payload_bytes: 8, ..Config::new(4, Mode::All, 0) };
        let mut node = Node::new(world.fabric(ProcessId(0)), config, 5, None).expect("a possible node");
        let lies = Lies { too_long: true, ..Lies::default() };
        let liar = Liar::new(world.fabric(LIAR), config, 5, None, lies, 1, ProcessSet::EMPTY);
        let (mut liar, mut drawn) = (liar.expect("a possible liar"), 0);
        let mut draw = || {
            drawn += 1;
            drawn
        };
        for _ in 0..100_000 {
            node.housekeep();
            liar.step(&mut draw, &mut |_| {});
            world.advance(1_000);
            if liar.told().named().any(|(_, count)| count > 0) {
                world.advance(1_000_000);
                return node;
            }
        }
        panic!("the liar never writes");
    }

    #[test]
    fn breach_that_only_a_fence_finds_is_reported() {
        let world = World::new(SimConfig::new(4, 1, NetworkModel::calm()));
        let mut node = with_unread_breach(&world);
        let ballot = Ballot { round: 1, operator: 1 };
        let fence = removal::Ask::Fence { ballot, base: ProcessSet::EMPTY, targets: [LIAR].into_iter().collect() };
        let question = Question { fingerprint: FINGERPRINT, ask: Ask::of(&fence) };
        let mut told = Vec::new();
        let answer = loop {
            let notify = &mut |notice: Notice<'_>| told.push(matches!(notice, Notice::Refused(LIAR, _)));
            match answer(&question, FINGERPRINT, &mut node, notify) {
                Answer::Fencing => world.advance(1_000),
                answer => break answer,
            }
        };
        assert!(matches!(answer, Answer::Report { .. }), "{answer:?}");
        assert_eq!(told, [true]);
        node.step(&mut |notice| panic!("it is reported twice: {notice:?}"));
    }
}
