//! The answers of a running member to an operator's questions.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use stentor_election::HandOverError;
use stentor_fabric::Waker;
use stentor_fabric_net::observe;
use stentor_host::Beside;
use stentor_multicast::Member;

use super::control::Control;
use super::elects::Elects;
use super::moves::Moves;
use super::question::{Answer, Lag, Question, REMOTE_SHOW, Standing};
use super::settling::unsettled;
#[cfg(feature = "roce")]
use crate::runtime::Faults;
use crate::runtime::{ClusterRuntime, FabricDiagnostics, hindrance_beside_missing, told_hindrance};

/// Interval between checks for questions and observers of other hosts, and for delivery progress.
const LOOK: Duration = Duration::from_millis(1);
/// Maximum number of undelivered messages that an answer lists by id.
const TOLD: usize = 4;
/// Maximum number of clients that an answer lists by name.
const CLIENTS: usize = 8;

/// The refusal of a member whose network has no faults to set.
const NO_FAULTS: &str = "only a node on `roce` that was started with --faults accepts network faults";

/// The denominator of drop probabilities.
#[cfg(feature = "roce")]
const MILLION: u32 = 1_000_000;

/// Answers operators' questions between two rounds of a member's loop.
#[derive(Debug, Default)]
pub struct Operator {
    /// The control socket for programs of this host, if there is one.
    control: Option<Control<Question>>,
    next: Duration,
    moves: Moves,
    /// `true` if an operator asked this member to end.
    ends: bool,
    /// Connections of observers that the node has not accepted yet.
    observers: Vec<ObserverLine>,
}

/// A connection of an observer, on which no frame was sent yet.
#[derive(Debug)]
pub enum ObserverLine {
    /// A connection from a process of this user on this host.
    Here(UnixStream),
    /// A connection from a process that has proved that it has the cluster's key.
    There(observe::Line),
}

impl Operator {
    /// Listens beside the member's socket, if the member has one. Otherwise only questions of other hosts are answered.
    /// `waker` is the waker of the member's fabric: a question on this host ends the sleep of the member's loop.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn listen(at: Option<&Beside>, waker: &Waker) -> io::Result<Self> {
        let listen = |at| {
            let waker = waker.clone();
            Control::listen(at, move || waker.wake())
        };
        Ok(Operator { control: at.map(listen).transpose()?, ..Operator::default() })
    }

    /// Stops answering. Call this before the owner of the member's directory is dropped.
    pub fn close(&mut self) {
        self.control = None;
    }

    /// Answers pending questions. Returns whether there is a result that the loop must process before it sleeps. Cheap
    /// if there is no question and no check is due.
    #[inline]
    pub fn round<F: FabricDiagnostics>(
        &mut self,
        now: Duration,
        plan: &ClusterRuntime,
        member: &mut Member<F>,
        election: &mut impl Elects,
    ) -> bool {
        if now >= self.next {
            self.next = now + LOOK;
            self.moves.look(now, member.replica());
            self.answer_remote(now, plan, member, election);
        }
        // Local questions are checked in every round: the asker woke the loop, and the clock may not have been read
        // since.
        match self.control.as_ref().and_then(Control::next) {
            Some(asked) if asked.question == Question::Observe => {
                self.observers.extend(asked.stream().map(ObserverLine::Here));
                asked.answer(Answer::Done);
                true
            }
            Some(asked) => {
                let answer = self.answer(&asked.question, now, plan, member, election);
                asked.answer(answer);
                true
            }
            None => false,
        }
    }

    /// Returns a connection of an observer that the node has not accepted yet, and removes it from the list.
    #[inline]
    pub fn next_observer(&mut self) -> Option<ObserverLine> {
        self.observers.pop()
    }

    fn answer_remote<F: FabricDiagnostics>(
        &mut self,
        now: Duration,
        plan: &ClusterRuntime,
        member: &mut Member<F>,
        election: &impl Elects,
    ) {
        while let Some(line) = member.fabric_mut().next_observer() {
            self.observers.push(ObserverLine::There(line));
        }
        if let Some((asker, question)) = member.fabric_mut().next_question() {
            let answer = if question == REMOTE_SHOW {
                Answer::Standing(Box::new(self.standing(now, plan, member, election)))
            } else {
                Answer::Refused("to other hosts it only reports its status".to_owned())
            };
            let answer = serde_json::to_vec(&answer).expect("answers have string keys");
            member.fabric_mut().answer(asker, &answer);
        }
    }

    /// Carries out a question of this host.
    #[cold]
    fn answer<F: FabricDiagnostics>(
        &mut self,
        question: &Question,
        now: Duration,
        plan: &ClusterRuntime,
        member: &mut Member<F>,
        election: &mut impl Elects,
    ) -> Answer {
        match question {
            Question::Show => Answer::Standing(Box::new(self.standing(now, plan, member, election))),
            Question::Stop => {
                self.ends = true;
                Answer::Done
            }
            // `round` answers this question, because it has the connection.
            Question::Observe => Answer::Refused("this process has no observers".to_owned()),
            Question::Move { to } => hand_over(plan, member, election, to),
            Question::Reset { ends, empty } => reset(member, ends, *empty),
            #[cfg(feature = "roce")]
            Question::Faults { drop_ppm, from, to } => {
                let drop = f64::from(*drop_ppm) / f64::from(MILLION);
                disturb(member, &Faults { drop, from: from.clone(), to: to.clone() })
            }
            #[cfg(not(feature = "roce"))]
            Question::Faults { .. } => Answer::Refused(NO_FAULTS.to_owned()),
        }
    }

    /// Returns whether an operator asked this member to end, as a signal would.
    #[inline]
    #[must_use]
    pub fn ends(&self) -> bool {
        self.ends
    }

    /// Returns the duration of the last suspension of this process, once after each suspension.
    pub fn paused(&mut self) -> Option<Duration> {
        self.moves.pause.take()
    }

    fn standing<F: FabricDiagnostics>(
        &self,
        now: Duration,
        plan: &ClusterRuntime,
        member: &Member<F>,
        election: &impl Elects,
    ) -> Standing {
        let replica = member.replica();
        let name = |process| plan.name(process).to_owned();
        let mut by_client = BTreeMap::new();
        for id in replica.undelivered() {
            *by_client.entry(id.client).or_insert(0_u64) += 1;
        }
        let topology = plan.topology();
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
            hindrance: hindrance_beside_missing(replica)
                .map(|hindrance| told_hindrance(&hindrance, |process| plan.name(process))),
            epoch: replica.ballot().number(),
            leader: name(replica.ballot().leader()),
            heard_ms: election.heard(replica.ballot().leader()).map(|at| now.saturating_sub(at).as_millis() as u64),
            promised: replica.promised().number(),
            named: election.is_named(),
            delivered: replica.delivered(),
            unsettled: unsettled(replica, plan),
            undelivered: replica.undelivered().count() as u64,
            waiting: replica.undelivered().take(TOLD).map(|id| id.to_string()).collect(),
            stalled_ms: if stalls { now.saturating_sub(self.moves.last).as_millis() as u64 } else { 0 },
            clients,
            expelled: member.expelled().map(name).collect(),
        }
    }
}

fn hand_over<F: FabricDiagnostics>(
    plan: &ClusterRuntime,
    member: &Member<F>,
    election: &mut impl Elects,
    to: &str,
) -> Answer {
    let refuse = |why: &dyn std::fmt::Display| Answer::Refused(why.to_string());
    let process = match plan.process(to) {
        Ok(process) => process,
        Err(error) => return refuse(&error),
    };
    if !member.replica().is_leader() {
        return refuse(&HandOverError::NotLeader);
    }
    match election.hand_over(process) {
        Ok(()) => Answer::Moving,
        Err(HandOverError::NotLeader) => {
            Answer::NotYet("it leads, but the election has not named it yet: ask again in a moment".to_owned())
        }
        Err(HandOverError::NotReady { .. }) if election.waits(process) => Answer::NotYet(format!(
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

fn reset<F: FabricDiagnostics>(member: &mut Member<F>, ends: &str, empty: bool) -> Answer {
    let done = ends.parse().map_err(str::to_owned);
    match done.and_then(|ends| member.reset(ends, empty).map_err(|error| error.to_string())) {
        Ok(()) => Answer::Moving,
        Err(why) => Answer::Refused(why),
    }
}

#[cfg(feature = "roce")]
fn disturb<F: FabricDiagnostics>(member: &mut Member<F>, faults: &Faults) -> Answer {
    if member.fabric_mut().set_faults(faults) {
        return Answer::Done;
    }
    Answer::Refused(NO_FAULTS.to_owned())
}
