//! The script: a process is killed under load, started again, and there is no next one before it has what the others have.

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

/// How long anything may take that is waited for.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Load before each kill, ms: at least, and how much more at most.
const CALM_MS: (u64, u64) = (100, 200);
/// From a kill until the process is started again, ms: at least, and how much more at most.
const GONE_MS: (u64, u64) = (20, 280);
/// Load at the end: what a client that was killed left to the members is delivered by then, or never.
const REST: Duration = Duration::from_millis(500);
/// Messages that a majority of each destination group must deliver before a process counts as back.
const PROOF: u64 = 32;
/// Rounds between two looks at the processes.
const ROUNDS_PER_LOOK: u64 = 256;

/// What was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Leader,
    Follower,
    Client,
}

/// One of the kills; times in ns of the histories' clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) role: Role,
    pub(super) group: usize,
    pub(super) process: ProcessId,
    /// Just before the signal.
    pub(super) at: u64,
    /// Just before the process was started again.
    pub(super) restarted: u64,
    /// When it had what the others have.
    pub(super) back: u64,
}

impl Kill {
    /// From its new start until it had what the others have.
    pub(super) fn rejoin_ns(&self) -> u64 {
        self.back.saturating_sub(self.restarted)
    }
}

/// Whoever kills, and multicasts meanwhile.
struct Script<'a, F: FabricDiagnostics> {
    play: Play<'a>,
    fleet: Fleet<'a>,
    load: Load<F>,
    rng: SimRng,
    rounds: u64,
    /// Since when nothing was delivered.
    silence: Patience,
    delivered: u64,
    /// The message whose delivery shows that everybody is back.
    whole_from: Option<u64>,
}

/// The task of a run, and the places where it is done.
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

/// On any fabric.
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

        // The first place is ours; nobody else is there yet.
        let fleet = RefCell::new(Fleet::start(plan, scene, args)?);
        let wait = mode(args.wait);
        let (config, sockets) = (scene.config(), scene.sockets());
        let told = |name: &str| scene.captures.of(name, 1);
        let start = |client| start_client::<F>(plan, client, (&config, &sockets), told);
        let joining = Joining {
            wait,
            timeout: 3 * TIMEOUT,
            // Whoever has ended is waited for in vain.
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
        script.until("the client is in", Script::is_whole)?;
        Ok(script)
    }

    /// All members count and have delivered what was multicast after that, all are taken in, and the other client is in. Who
    /// has the application's state counts for clients before it is taken in, and may not be relied on yet.
    fn is_whole(&mut self) -> bool {
        let mut members = (0..self.play.plan.topology().all_members() as u16).map(ProcessId);
        if !members.all(|member| self.load.client().counts_on(member)) {
            self.whole_from = None;
            return false;
        }
        let sent = self.load.sequence();
        // Enough messages that each group gets some.
        let from = *self.whole_from.get_or_insert(sent + PROOF);
        self.rounds.is_multiple_of(16) && self.delivered >= from && self.fleet.client_is_in() && self.fleet.all_are_in()
    }

    /// One round of the load, and a look at everybody now and then.
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

    /// Load for a while.
    fn pass(&mut self, time: Duration) -> Result<(), Failure> {
        let mut patience = Patience::new();
        while patience.look() < time {
            self.round()?;
        }
        Ok(())
    }

    /// Load until something is so.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Failure> {
        let mut patience = Patience::new();
        while !done(self) {
            self.round()?;
            if patience.look() > 3 * TIMEOUT {
                return Err(self.stuck(&format!("not after {:?}: {what}", 3 * TIMEOUT)));
            }
        }
        Ok(())
    }

    fn some(&mut self, (least, more): (u64, u64)) -> Duration {
        Duration::from_millis(least + self.rng.below(more + 1))
    }

    /// Whom to kill: of all roles and groups alike.
    fn choose(&mut self, victims: Victims) -> Result<(Role, usize, ProcessId), Failure> {
        let groups = self.play.plan.topology().groups() as u64;
        let role = match victims {
            Victims::Leader => Role::Leader,
            Victims::Any => [Role::Leader, Role::Follower, Role::Client][self.rng.below(3) as usize],
        };
        let group = self.rng.below(groups) as usize;
        let id = self.play.plan.topology().group_ids().nth(group).expect("drawn among them");
        let members: Vec<ProcessId> = self.play.plan.topology().members(id).collect();
        let leader = self.fleet.leader(self.play.plan, group).ok_or_else(|| self.stuck("nobody says who leads"))?;
        let process = match role {
            Role::Leader => leader,
            Role::Follower => {
                let followers: Vec<_> = members.into_iter().filter(|member| *member != leader).collect();
                followers[self.rng.below(followers.len() as u64) as usize]
            }
            Role::Client => {
                let name = self.fleet.client_name().ok_or_else(|| self.stuck("the client is not in"))?;
                self.play.plan.process(&name).map_err(|error| self.stuck(&error.to_string()))?
            }
        };
        Ok((role, group, process))
    }

    /// One kill, from calm to calm.
    fn kill(&mut self, victims: Victims) -> Result<Kill, Failure> {
        let calm = self.some(CALM_MS);
        self.pass(calm)?;
        let (role, group, process) = self.choose(victims)?;
        let at = now_ns();
        let gone = self.some(GONE_MS);
        let life = if role == Role::Client {
            self.fleet.kill_client()?
        } else {
            // Load goes on while the system takes its memory apart.
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

    /// Whether all members have delivered as much as the others of their group, looked at now and then. Who comes back under
    /// load may be behind for a while when it is over; what clients wait for is that a majority has it.
    fn is_level(&mut self) -> Result<bool, Failure> {
        self.rounds += 1;
        if !self.rounds.is_multiple_of(16) {
            return Ok(false);
        }
        self.fleet.check_members()?;
        Ok(self.fleet.is_level(self.play.plan))
    }

    /// Everything comes to rest.
    fn end(mut self) -> Result<(), Failure> {
        self.pass(REST)?;
        let Script { fleet, load, .. } = &mut self;
        fleet.stop_client(|| load.round(true))?;
        let mut patience = Patience::new();
        while self.load.client().outstanding() > 0 || patience.look() < REST || !self.is_level()? {
            self.load.round(false)?;
            if patience.look() > TIMEOUT {
                let left = self.load.client().outstanding();
                return Err(self.stuck(&format!("not everybody has everything in the end, {left} are outstanding")));
            }
        }
        let completed = self.load.recorder().complete();
        completed.map_err(|error| Failure::cannot_write(self.play.scene.path(), &error))?;
        self.load.close()?;
        self.fleet.stop()
    }
}
