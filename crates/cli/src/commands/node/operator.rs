//! What an operator asks a running node.

use std::path::Path;
use std::time::Duration;

use stentor::runtime::{Faults, Hosted, Member, Plan};
use stentor_election::HandOverError;

use super::keeping::Keeping;
use crate::failure::Failure;
use crate::live::{Answer, Control, Question, Standing};

/// How often questions are looked for.
const LOOK: Duration = Duration::from_millis(1);
/// Undelivered messages that are told by name.
const TOLD: usize = 4;

/// The denominator of drop probabilities.
const MILLION: u32 = 1_000_000;

/// Answers between two rounds of the node's loop.
pub(super) struct Operator<'a> {
    plan: &'a Plan,
    control: Control,
    next: Duration,
}

impl<'a> Operator<'a> {
    /// Listens beside the member's socket.
    pub(super) fn listen(plan: &'a Plan, path: &Path) -> Result<Self, Failure> {
        let control = Control::listen(path).map_err(|error| {
            let what = format_args!("cannot listen for `stentor leader`: {error}");
            Failure::run(
                what,
                path.display(),
                "raise the limits of open files and threads, or choose another directory",
            )
        })?;
        Ok(Operator { plan, control, next: Duration::ZERO })
    }

    /// Answers what was asked. Cheap when it is not yet time.
    #[inline]
    pub(super) fn round<F: Hosted>(&mut self, now: Duration, member: &mut Member<F>, keeper: &mut Keeping) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        if let Some(asked) = self.control.next() {
            let answer = match &asked.question {
                Question::Show => Answer::Standing(self.standing(now, member, keeper)),
                Question::Move { to } => self.hand_over(member, keeper, to),
                Question::Faults { drop_ppm, from, to } => {
                    let drop = f64::from(*drop_ppm) / f64::from(MILLION);
                    disturb(member, &Faults { drop, from: from.clone(), to: to.clone() })
                }
            };
            asked.answer(answer);
        }
    }

    fn standing<F: Hosted>(&self, now: Duration, member: &Member<F>, keeper: &Keeping) -> Standing {
        let replica = member.replica();
        let name = |process| self.plan.name(process).to_owned();
        Standing {
            id: name(member.fabric().me()),
            pid: std::process::id(),
            leads: replica.is_leader(),
            campaigns: replica.is_candidate(),
            joining: replica.is_joining(),
            epoch: replica.ballot().number(),
            leader: name(replica.ballot().leader()),
            heard_ms: keeper.heard(replica.ballot().leader()).map(|at| now.saturating_sub(at).as_millis() as u64),
            promised: replica.promised().number(),
            named: keeper.is_named(),
            delivered: replica.delivered(),
            undelivered: replica.undelivered().count() as u64,
            waiting: replica.undelivered().take(TOLD).map(|id| id.to_string()).collect(),
        }
    }

    fn hand_over<F: Hosted>(&self, member: &Member<F>, keeper: &mut Keeping, to: &str) -> Answer {
        let refuse = |why: &dyn std::fmt::Display| Answer::Refused(why.to_string());
        let process = match self.plan.process(to) {
            Ok(process) => process,
            Err(error) => return refuse(&error),
        };
        if !member.replica().is_leader() {
            return refuse(&HandOverError::NotLeader);
        }
        match keeper.hand_over(process) {
            Ok(()) => Answer::Moving,
            Err(HandOverError::NotLeader) => {
                Answer::NotYet("it leads, but the election has not named it yet: ask again in a moment".to_owned())
            }
            Err(HandOverError::NotReady { .. }) if keeper.waits(process) => Answer::NotYet(format!(
                "`{to}` is there, but would not lead: it waits for its group's state, or was told to stop; ask again when \
                 it is ready"
            )),
            Err(HandOverError::NotReady { .. }) => {
                refuse(&format_args!("`{to}` does not answer, or waits for its group's state: ask again when it is up"))
            }
            Err(error) => refuse(&error),
        }
    }
}

fn disturb<F: Hosted>(member: &mut Member<F>, faults: &Faults) -> Answer {
    if member.fabric_mut().set_faults(faults) {
        return Answer::Done;
    }
    Answer::Refused("only a node on `roce` that was started with --faults loses packets when it is asked to".to_owned())
}
