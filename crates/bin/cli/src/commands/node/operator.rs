//! What an operator asks a running node.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor::runtime::{ClusterRuntime, FabricDiagnostics, Faults, Member};
use stentor_election::HandOverError;
use stentor_host::Beside;
use stentor_multicast::Replica;
use stentor_support::Failure;
use stentor_support::live::{Answer, Control, Lag, Question, REMOTE_SHOW, Standing};

use super::beginnings::unsettled;
use super::hindrance::{beside_missing, told};
use super::keeping::Keeping;

/// How often questions are looked for.
const LOOK: Duration = Duration::from_millis(1);
/// Undelivered messages that are told by name.
const TOLD: usize = 4;
/// Clients whose undelivered messages are counted by name.
const CLIENTS: usize = 8;
/// How often it is looked whether messages move. Who did not look for ten times as long was stopped itself.
const MOVES: Duration = Duration::from_millis(50);

/// The denominator of drop probabilities.
const MILLION: u32 = 1_000_000;

/// Answers between two rounds of the node's loop.
pub(super) struct Operator<'a> {
    plan: &'a ClusterRuntime,
    /// Where this host asks; there may be no such place.
    control: Option<Control>,
    next: Duration,
    moves: Moves,
    /// Somebody asked this process to end.
    ends: bool,
}

/// Whether messages move.
#[derive(Default)]
struct Moves {
    delivered: u64,
    /// When some were delivered, or there were none to deliver.
    last: Duration,
    looked: Duration,
    /// This process did not look for so long.
    pause: Option<Duration>,
}

impl Moves {
    #[inline]
    fn look(&mut self, now: Duration, replica: &Replica) {
        if self.looked.is_zero() {
            // What was before the first look is no pause.
            self.looked = now;
        }
        let pause = now.saturating_sub(self.looked);
        if pause < MOVES {
            return;
        }
        if pause > 10 * MOVES {
            self.pause = Some(pause);
        }
        self.looked = now;
        let delivered = replica.delivered();
        if delivered != self.delivered || pause > 10 * MOVES || replica.undelivered().next().is_none() {
            (self.delivered, self.last) = (delivered, now);
        }
    }
}

impl<'a> Operator<'a> {
    /// Listens beside the member's socket, if there is such a place.
    pub(super) fn listen(plan: &'a ClusterRuntime, at: Option<&Beside>) -> Result<Self, Failure> {
        let listen = |at: &Beside| {
            Control::listen(at).map_err(|error| {
                let place = at.path();
                let remedy = "choose another directory";
                Failure::system("cannot listen for `stentor leader`", &error, place.display(), remedy)
            })
        };
        let control = at.map(listen).transpose()?;
        Ok(Operator { plan, control, next: Duration::ZERO, moves: Moves::default(), ends: false })
    }

    /// Answers what was asked. Cheap when it is not yet time.
    #[inline]
    pub(super) fn round<F: FabricDiagnostics>(&mut self, now: Duration, member: &mut Member<F>, keeper: &mut Keeping) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        self.moves.look(now, member.replica());
        if let Some((asker, question)) = member.fabric_mut().next_question() {
            let answer = if question == REMOTE_SHOW {
                Answer::Standing(Box::new(self.standing(now, member, keeper)))
            } else {
                Answer::Refused("from another host it only tells how it stands".to_owned())
            };
            let answer = serde_json::to_vec(&answer).expect("answers have string keys");
            member.fabric_mut().answer(asker, &answer);
        }
        if let Some(asked) = self.control.as_ref().and_then(Control::next) {
            let answer = match &asked.question {
                Question::Show => Answer::Standing(Box::new(self.standing(now, member, keeper))),
                Question::Stop => {
                    self.ends = true;
                    Answer::Done
                }
                Question::Move { to } => self.hand_over(member, keeper, to),
                Question::Reset { ends, empty } => reset(member, ends, *empty),
                Question::Faults { drop_ppm, from, to } => {
                    let drop = f64::from(*drop_ppm) / f64::from(MILLION);
                    disturb(member, &Faults { drop, from: from.clone(), to: to.clone() })
                }
            };
            asked.answer(answer);
        }
    }

    /// Whether somebody asked this process to end.
    #[inline]
    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Returns for how long this process did not run, once after each pause.
    pub(super) fn paused(&mut self) -> Option<Duration> {
        self.moves.pause.take()
    }

    fn standing<F: FabricDiagnostics>(&self, now: Duration, member: &Member<F>, keeper: &Keeping) -> Standing {
        let replica = member.replica();
        let name = |process| self.plan.name(process).to_owned();
        let mut by_client = BTreeMap::new();
        for id in replica.undelivered() {
            *by_client.entry(id.client).or_insert(0_u64) += 1;
        }
        let topology = self.plan.topology();
        let lag = |(client, undelivered)| Lag { client: name(topology.client_process(client)), undelivered };
        let mut clients: Vec<_> = by_client.into_iter().map(lag).collect();
        clients.sort_by_key(|lag| std::cmp::Reverse(lag.undelivered));
        clients.truncate(CLIENTS);
        let stalls = replica.undelivered().next().is_some();
        Standing {
            id: name(member.fabric().me()),
            pid: std::process::id(),
            leads: replica.is_leader(),
            campaigns: replica.is_candidate(),
            joining: replica.is_joining(),
            incarnation: replica.incarnation().to_string(),
            ends: replica.reset_ends().to_string(),
            hindrance: beside_missing(replica).map(|hindrance| told(&hindrance, |process| self.plan.name(process))),
            epoch: replica.ballot().number(),
            leader: name(replica.ballot().leader()),
            heard_ms: keeper.heard(replica.ballot().leader()).map(|at| now.saturating_sub(at).as_millis() as u64),
            promised: replica.promised().number(),
            named: keeper.is_named(),
            delivered: replica.delivered(),
            unsettled: unsettled(replica, self.plan),
            undelivered: replica.undelivered().count() as u64,
            waiting: replica.undelivered().take(TOLD).map(|id| id.to_string()).collect(),
            stalled_ms: if stalls { now.saturating_sub(self.moves.last).as_millis() as u64 } else { 0 },
            clients,
            expelled: member.expelled().map(name).collect(),
        }
    }

    fn hand_over<F: FabricDiagnostics>(&self, member: &Member<F>, keeper: &mut Keeping, to: &str) -> Answer {
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
            Err(HandOverError::NotAMember { .. }) => {
                refuse(&format_args!("`{to}` is not a member of its group: name one of its members"))
            }
            Err(error) => refuse(&error),
        }
    }
}

fn reset<F: FabricDiagnostics>(member: &mut Member<F>, ends: &str, empty: bool) -> Answer {
    let done = ends.parse().map_err(str::to_owned);
    match done.and_then(|ends| member.reset(ends, empty).map_err(|error| error.to_string())) {
        Ok(()) => Answer::Moving,
        Err(why) => Answer::Refused(why),
    }
}

fn disturb<F: FabricDiagnostics>(member: &mut Member<F>, faults: &Faults) -> Answer {
    if member.fabric_mut().set_faults(faults) {
        return Answer::Done;
    }
    Answer::Refused("only a node on `roce` that was started with --faults loses packets when it is asked to".to_owned())
}
