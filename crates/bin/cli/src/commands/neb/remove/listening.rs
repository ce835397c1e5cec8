//! A process's side: what an operator asks is answered between two rounds.

use stentor::operator::{Asks, Control};
use stentor::runtime::FabricDiagnostics;
use stentor_fabric::Waker;
use stentor_host::Beside;
use stentor_neb::Node;
use stentor_support::Failure;

use super::words::{Answer, Question};

/// Where a process of the broadcast listens for operators.
pub(crate) struct Listening {
    control: Control<Question>,
    /// The configuration's.
    fingerprint: u64,
}

impl Listening {
    /// Listens beside the process's socket. `waker` is that of the process's fabric.
    pub(crate) fn at(at: &Beside, fingerprint: u64, waker: Waker) -> Result<Self, Failure> {
        let control = Control::listen(at, move || waker.wake()).map_err(|error| {
            let what = format_args!("cannot listen for `stentor neb remove`: {error}");
            let remedy = "raise the limits of open files and threads, or choose another directory";
            Failure::run(what, at.path().display(), remedy)
        })?;
        Ok(Listening { control, fingerprint })
    }

    /// Answers what was asked. Whether anything was.
    pub(crate) fn round<F: FabricDiagnostics>(&self, node: &mut Node<F>) -> bool {
        let Some(asked) = self.control.next() else { return false };
        let Question { fingerprint, ask } = &asked.question;
        let answer = if *fingerprint == self.fingerprint {
            // What a sender breaks shows in the next round as well: its stream has ended then.
            Answer::of(node.ask(&ask.meant(), &mut |_| {}))
        } else {
            Question::refuse("it was started with another configuration".to_owned())
        };
        asked.answer(answer);
        true
    }
}
