//! The part of a removal that runs in each process of the broadcast. It answers requests of operators between two
//! rounds.

use stentor::operator::{Asks, Control};
use stentor::runtime::FabricDiagnostics;
use stentor_fabric::Waker;
use stentor_host::Beside;
use stentor_neb::Node;
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

    /// Answers the next request. Returns whether there was one.
    pub(crate) fn round<F: FabricDiagnostics>(&self, node: &mut Node<F>) -> bool {
        let Some(asked) = self.control.next() else { return false };
        let Question { fingerprint, ask } = &asked.question;
        let answer = if *fingerprint == self.fingerprint {
            // Notices are dropped here, so a breach of the protocol that this request finds is not reported. The end of
            // the sender's stream is reported once its removal is decided.
            Answer::of(node.ask(&ask.meant(), &mut |_| {}))
        } else {
            Question::refuse("it was started with another configuration".to_owned())
        };
        asked.answer(answer);
        true
    }
}
