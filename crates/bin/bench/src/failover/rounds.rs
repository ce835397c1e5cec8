//! The script: a process is killed under load and restarted. The next kill waits until that process has caught up with
//! the others.

use std::cell::RefCell;
use std::time::Duration;

use stentor::runtime::{ClusterFabric, ClusterRuntime, FabricDiagnostics, now_ns};
use stentor::with_fabric;
use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimRng;
use stentor_support::live::{Interrupt, Joining, start_client};
use stentor_support::{Failure, Output};

use super::Patience;
use super::fleet::{Fleet, pace};
use super::load::{Load, Pace};
use super::scene::Scene;
use crate::args::{BenchFailover, Victims};
use crate::pause::mode;

/// Longest time without a delivery, and longest time to come to rest at the end. A process may take three times as long
/// to join or to return.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Duration of the load before each kill, in milliseconds: the minimum, and the largest random addition.
const CALM_MS: (u64, u64) = (100, 200);
/// Time from a kill to the restart, in milliseconds: the minimum, and the largest random addition.
const GONE_MS: (u64, u64) = (20, 280);
/// Duration of the load at the end. Messages of a killed client that are not delivered within this time never will be.
const REST: Duration = Duration::from_millis(500);
/// Number of messages that a majority of each destination group must deliver before a process counts as back.
const PROOF: u64 = 32;
/// Number of rounds between two checks of the processes.
const ROUNDS_PER_LOOK: u64 = 256;

/// Role of a process that was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Leader,
    Follower,
    Client,
}

/// A kill. All times are in nanoseconds on the clock of the histories.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) role: Role,
    pub(super) group: usize,
    pub(super) process: ProcessId,
    /// Time just before the signal.
    pub(super) at: u64,
    /// Time just before the restart.
    pub(super) restarted: u64,
    /// Time at which the process had caught up with the other members.
    pub(super) back: u64,
}

impl Kill {
    /// Returns the time from the restart until the process had caught up.
    pub(super) fn rejoin_ns(&self) -> u64 {
        self.back.saturating_sub(self.restarted)
    }
}

/// The state of the process that kills the others, and that multicasts at the same time.
struct Script<'a, F: FabricDiagnostics> {
    play: Play<'a>,
    fleet: Fleet<'a>,
    load: Load<F>,
    rng: SimRng,
    rounds: u64,
    /// Time since the last delivery.
    silence: Patience,
    delivered: u64,
    /// Sequence up to which majorities must deliver before the cluster counts as recovered. `None` until all members
    /// count for flow control again.
    whole_from: Option<u64>,
}

/// The parameters of a run.
#[derive(Clone, Copy)]
pub(super) struct Play<'a> {
    pub(super) args: &'a BenchFailover,
    pub(super) plan: &'a ClusterRuntime,
    pub(super) scene: &'a Scene,
    pub(super) interrupt: &'a Interrupt,
}

pub(super) fn play(play: Play<'_>, output: Output) -> Result<Vec<Kill>, Failure> {
    with_fabric!(play.plan.config().fabric(), F => run::<F>(play, output))
}

/// Runs the script on any fabric.
fn run<F: ClusterFabric>(play: Play<'_>, output: Output) -> Result<Vec<Kill>, Failure> {
    let args = play.args;
    let mut script = Script::<F>::begin(play)?;
    let bar = output.progress_count("killing", u64::from(args.rounds));
    let mut kills = Vec::new();
    for round in 0..args.rounds {
        kills.push(script.kill(args.kill).map_err(|failure| in_round(round, args.seed, failure))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    script.end()?;
    Ok(kills)
}

fn in_round(round: u32, seed: u64, failure: Failure) -> Failure {
    Failure { what: format!("round {round} of seed {seed}: {}", failure.what), ..failure }
}

impl<'a, F: ClusterFabric> Script<'a, F> {
    fn begin(play: Play<'a>) -> Result<Self, Failure> {
        let Play { args, plan, scene, interrupt } = play;

        // This process and the client of the fleet join at the same time. Either may get the first client id.
        let fleet = RefCell::new(Fleet::start(plan, scene, args)?);
        let wait = mode(args.wait);
        let (config, sockets) = (scene.config(), scene.sockets());
        let told = |name: &str| scene.captures.of(name, 1);
        let start = |client| start_client::<F>(plan, client, (&config, &sockets), told);
        let joining = Joining {
            wait,
            timeout: 3 * TIMEOUT,
            // Waiting for a process that has ended would be in vain.
            check: &|| interrupt.check().and_then(|()| fleet.borrow_mut().check()),
            ..Joining::to_all(plan, &config, &sockets, &start)
        };
        let joined = joining.join(None, |_| ())?;
        let fleet = fleet.into_inner();
        let name = plan.name(plan.topology().client_process(joined.id)).to_owned();
        let pace = Pace { seed: args.seed, rate: pace(args), wait, ahead: false, life: 1 };
        let load = Load::new(plan, joined, &scene.history(&name, 1), &pace)?;
        let rng = SimRng::new(args.seed, u64::MAX);
        let silence = Patience::new();
        let mut script = Script { play, fleet, load, rng, rounds: 0, silence, delivered: 0, whole_from: None };
        script.until("the client has joined", Script::is_whole)?;
        Ok(script)
    }

    /// Returns whether the cluster has recovered: all members count for flow control, majorities have delivered
    /// messages that were multicast after that, all members have restored their state, and the other client has joined.
    /// A member with the application's state counts for clients even before its rejoin is complete, so counting is not
    /// enough.
    fn is_whole(&mut self) -> bool {
        let mut members = (0..self.play.plan.topology().all_members() as u16).map(ProcessId);
        if !members.all(|member| self.load.client().counts_on(member)) {
            self.whole_from = None;
            return false;
        }
        let sent = self.load.sequence();
        // With this many messages, each group almost certainly gets some.
        let from = *self.whole_from.get_or_insert(sent + PROOF);
        self.rounds.is_multiple_of(16) && self.delivered >= from && self.fleet.client_is_in() && self.fleet.all_are_in()
    }

    /// Runs one round of the load, and checks all processes from time to time.
    fn round(&mut self) -> Result<(), Failure> {
        self.load.round(true)?;
        self.rounds += 1;
        if self.load.client().delivered_up_to() > self.delivered {
            self.delivered = self.load.client().delivered_up_to();
            self.silence = Patience::new();
        }
        if self.silence.look() > TIMEOUT {
            let left = self.load.client().outstanding();
            return Err(self.stuck(&format!("nothing was delivered for {TIMEOUT:?}, {left} are outstanding")));
        }
        self.play.interrupt.check()?;
        if self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            self.fleet.check()?;
        }
        Ok(())
    }

    fn stuck(&self, what: &str) -> Failure {
        let what = format!("{what}; {}", self.fleet.last_words());
        Failure::run(what, self.play.scene.path().display(), "report this as a bug, with that directory")
    }

    /// Runs the load for `time`.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let mut patience = Patience::new();
        while patience.look() < time {
            self.round()?;
        }
        Ok(())
    }

    /// Runs the load until `done` returns `true`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Failure> {
        let mut patience = Patience::new();
        while !done(self) {
            self.round()?;
            if patience.look() > 3 * TIMEOUT {
                return Err(self.stuck(&format!("after {:?} still not: {what}", 3 * TIMEOUT)));
            }
        }
        Ok(())
    }

    fn some(&mut self, (least, more): (u64, u64)) -> Duration {
        Duration::from_millis(least + self.rng.below(more + 1))
    }

    /// Chooses the victim. All roles that `victims` permits have the same chance, and so have all groups.
    fn choose(&mut self, victims: Victims) -> Result<(Role, usize, ProcessId), Failure> {
        let groups = self.play.plan.topology().groups() as u64;
        let role = match victims {
            Victims::Leader => Role::Leader,
            Victims::Any => [Role::Leader, Role::Follower, Role::Client][self.rng.below(3) as usize],
        };
        let group = self.rng.below(groups) as usize;
        let id = self.play.plan.topology().group_ids().nth(group).expect("drawn among them");
        let members: Vec<ProcessId> = self.play.plan.topology().members(id).collect();
        let leader =
            self.fleet.leader(self.play.plan, group).ok_or_else(|| self.stuck("no member has logged a leader"))?;
        let process = match role {
            Role::Leader => leader,
            Role::Follower => {
                let followers: Vec<_> = members.into_iter().filter(|member| *member != leader).collect();
                followers[self.rng.below(followers.len() as u64) as usize]
            }
            Role::Client => {
                let name = self.fleet.client_name().ok_or_else(|| self.stuck("the client has not joined"))?;
                self.play.plan.process(&name).map_err(|error| self.stuck(&error.to_string()))?
            }
        };
        Ok((role, group, process))
    }

    /// Performs one round: a calm period, a kill, a restart, and the wait until the process has caught up.
    fn kill(&mut self, victims: Victims) -> Result<Kill, Failure> {
        let calm = self.some(CALM_MS);
        self.pass(calm)?;
        let (role, group, process) = self.choose(victims)?;
        let at = now_ns();
        let gone = self.some(GONE_MS);
        let life = if role == Role::Client {
            self.fleet.kill_client()?
        } else {
            // The load continues while the kernel tears down the memory of the process.
            self.fleet.kill(process)?;
            self.pass(gone)?;
            self.fleet.bury(process)?
        };
        let path = self.play.scene.path();
        let crashed = self.load.recorder().crash(now_ns(), process, life.into());
        crashed.map_err(|error| Failure::cannot_write(path, &error))?;
        if role == Role::Client {
            self.pass(gone)?;
        }
        let restarted = now_ns();
        if role == Role::Client {
            self.fleet.restart_client()?;
        } else {
            self.fleet.restart(process)?;
        }
        self.whole_from = None;
        let taken = self.play.plan.name(process).to_owned();
        self.until(&format!("`{taken}` is back"), Script::is_whole)?;
        Ok(Kill { role, group, process, at, restarted, back: now_ns() })
    }

    /// Returns whether all members have delivered as many messages as the others of their group. Checks that only in
    /// one of 16 calls, and returns `false` in the others. A member that rejoins under load may still lag when the load
    /// ends, because clients wait only for a majority.
    fn is_level(&mut self) -> Result<bool, Failure> {
        self.rounds += 1;
        if !self.rounds.is_multiple_of(16) {
            return Ok(false);
        }
        self.fleet.check_members()?;
        Ok(self.fleet.is_level(self.play.plan))
    }

    /// Lets all processes come to rest, and stops them.
    fn end(mut self) -> Result<(), Failure> {
        self.pass(REST)?;
        let Script { fleet, load, .. } = &mut self;
        fleet.stop_client(|| load.round(true))?;
        let mut patience = Patience::new();
        while self.load.client().outstanding() > 0 || patience.look() < REST || !self.is_level()? {
            self.load.round(false)?;
            if patience.look() > TIMEOUT {
                let left = self.load.client().outstanding();
                return Err(self.stuck(&format!(
                    "at the end, not all members have delivered all messages, {left} are outstanding"
                )));
            }
        }
        let completed = self.load.recorder().complete();
        completed.map_err(|error| Failure::cannot_write(self.play.scene.path(), &error))?;
        self.load.close()?;
        self.fleet.stop()
    }
}
