//! `stentor leader`: shows the leaders of groups, and moves leadership.

mod asking;
mod judge;
mod member;
mod report;
mod reset;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stentor::runtime::{ClusterRuntime, GroupId, find};
use stentor_fabric::ProcessId;
use stentor_multicast::ProcessRole;

use crate::args::{LeaderCommand, LeaderMove, LeaderShow, Where};
use member::Member;
use report::{Moved, Shown};
use stentor::operator::{Answer, Question, Standing, ask};
use stentor_support::live::{self, Interrupt, unstarted};
use stentor_support::{Failure, Output, Verdict};

/// Interval at which the new leader is checked.
const LOOK: Duration = Duration::from_millis(2);
/// Time for which `leader show` waits for the answers of all members together.
const BRIEF: Duration = Duration::from_millis(400);
/// Time for which `leader move` waits for answers. It is longer, because the command needs the answer of every member.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before a second query. That query is made if some group does not work, although no member was silent or
/// unknown and the first query took less than this time.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for which a request is repeated while it is refused for a temporary reason.
const SOON: Duration = Duration::from_secs(2);

pub(super) use self::reset::reset;

pub(super) fn run(command: &LeaderCommand, output: Output) -> Result<Verdict, Failure> {
    match command {
        LeaderCommand::Show(args) => show(args, output),
        LeaderCommand::Move(args) => hand_over(args, output),
    }
}

/// Result of a query.
enum Heard<T> {
    Answer(T),
    /// No process exists there.
    Nobody,
    /// A process exists but does not answer, because it is stopped or very busy. Its pid, if it is known.
    Silence(Option<i32>),
    /// The process cannot be asked from here, with the reason.
    Unknown(String),
}

impl<T> Heard<T> {
    fn answer(self) -> Option<T> {
        match self {
            Heard::Answer(answer) => Some(answer),
            Heard::Nobody | Heard::Silence(_) | Heard::Unknown(_) => None,
        }
    }
}

/// A cluster whose processes may be running.
struct Cluster<'a> {
    plan: ClusterRuntime,
    config: &'a Path,
    directory: PathBuf,
    /// Name of the meeting directory inside `directory`.
    meeting: String,
    /// `true` if members may be on other hosts, where commands cannot change them.
    spread: bool,
}

impl<'a> Cluster<'a> {
    fn of(place: &'a Where) -> Result<Self, Failure> {
        let plan = live::plan(&place.config)?;
        let (meeting, spread) = (plan.meeting_name(), plan.config().fabric().is_between_hosts());
        let directory = live::directory(place.directory.as_ref());
        Ok(Cluster { plan, config: &place.config, directory, meeting, spread })
    }

    /// Sends a question to a process. Returns `None` if the process does not run on this host or does not answer.
    fn ask(&self, process: ProcessId, question: &Question) -> Result<Option<Answer>, Failure> {
        let name = self.plan.name(process);
        let paths = stentor_host::all_beside(&self.directory, &self.meeting, process)
            .map_err(|error| unstarted(error.into(), self.config))?;
        match ask(&paths, question) {
            Ok(answer) => Ok(answer),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => Ok(None),
            Err(error) => {
                let what = format_args!("the answer of `{name}` is invalid: {error}");
                Err(Failure::run(what, self.directory.display(), "look at its log; stop it and start it again"))
            }
        }
    }

    /// Returns the state of a member on any host, or `None` if it does not run, does not answer, or cannot be asked.
    fn standing(&self, process: ProcessId) -> Result<Option<Standing>, Failure> {
        Ok(asking::all(self, &[process], PATIENCE)?.pop().and_then(Heard::answer))
    }

    fn refused(&self, process: ProcessId, why: &str) -> Failure {
        let what = format_args!("`{}` refuses: {why}", self.plan.name(process));
        Failure::run(what, self.config.display(), "`stentor leader show` shows the state of all members")
    }
}

fn show(args: &LeaderShow, output: Output) -> Result<Verdict, Failure> {
    let cluster = Cluster::of(&args.place)?;
    let groups = if args.group.is_empty() {
        cluster.plan.topology().group_ids().collect()
    } else {
        live::groups(&cluster.plan, &args.group, cluster.config)?
    };
    let since = Instant::now();
    let mut shown = look(&cluster, &groups)?;
    // The leader may be changing just now. A second query shows what the members then agree on.
    if !shown.ok && !shown.is_incomplete() && since.elapsed() < AGAIN {
        std::thread::sleep(AGAIN);
        shown = look(&cluster, &groups)?;
    }
    output.conclude(&shown, Verdict::of(shown.ok))
}

/// Queries all members of these groups.
fn look(cluster: &Cluster<'_>, groups: &[GroupId]) -> Result<Shown, Failure> {
    let members = |group: GroupId| cluster.plan.topology().members(group).map(move |process| (group, process));
    let members: Vec<_> = groups.iter().copied().flat_map(members).collect();
    let processes: Vec<_> = members.iter().map(|(_, process)| *process).collect();
    let heard = asking::all(cluster, &processes, BRIEF)?;
    let member = |((group, process), heard): (&(GroupId, ProcessId), _)| {
        let (heard, note) = asking::elsewhere(cluster, *process, heard);
        let name = cluster.plan.group_name(*group);
        Member::new(name, cluster.plan.name(*process), heard, note)
    };
    let members = members.iter().zip(heard).map(member).collect();
    Ok(Shown::new(members, cluster.plan.config().election_times().max))
}

fn hand_over(args: &LeaderMove, output: Output) -> Result<Verdict, Failure> {
    let cluster = Cluster::of(&args.place)?;
    let interrupt = Interrupt::catch()?;
    let to = cluster.plan.process(&args.to).map_err(|error| unstarted(error, cluster.config))?;
    let Some(ProcessRole::Member { group, .. }) = cluster.plan.topology().role(to) else {
        let what = format_args!("`{}` is a client", args.to);
        return Err(Failure::usage(what, "--to", "name a member of a group"));
    };
    let since = Instant::now();
    let (from, before) = nominate(&cluster, group, to, args, &interrupt)?;
    let epoch = loop {
        match cluster.standing(to)? {
            Some(standing) if standing.leads && (from == to || standing.epoch > before.epoch) => break standing.epoch,
            Some(_) => {}
            // If the new leader cannot be asked, ask the previous one, which follows it.
            None => match cluster.standing(from)? {
                Some(standing) if standing.leader == args.to && standing.epoch > before.epoch => break standing.epoch,
                _ => {}
            },
        }
        interrupt.check()?;
        if since.elapsed() > Duration::from_secs(args.timeout) {
            let what = format_args!("`{}` does not lead after {} s", args.to, args.timeout);
            let remedy =
                "`stentor leader show` shows the state of all members; a group without a majority has no leader";
            return Err(Failure::run(what, cluster.config.display(), remedy));
        }
        std::thread::sleep(LOOK);
    };
    let moved = Moved {
        group: cluster.plan.group_name(group).to_owned(),
        from: before.id,
        to: args.to.clone(),
        epoch,
        seconds: since.elapsed().as_secs_f64(),
    };
    output.conclude(&moved, Verdict::Good)
}

/// Asks the leader to hand over, unless `to` leads already. Returns the leader and its state before that. A temporary
/// refusal is retried for a moment: the leader of a group that has just begun is named soon, and a member that is
/// joining is ready soon.
fn nominate(
    cluster: &Cluster<'_>,
    group: GroupId,
    to: ProcessId,
    args: &LeaderMove,
    interrupt: &Interrupt,
) -> Result<(ProcessId, Standing), Failure> {
    let until = Instant::now() + SOON.min(Duration::from_secs(args.timeout));
    loop {
        let (from, before) = leader(cluster, group)?;
        if from == to {
            return Ok((from, before));
        }
        match cluster.ask(from, &Question::Move { to: args.to.clone() })? {
            Some(Answer::Moving) => return Ok((from, before)),
            Some(Answer::NotYet(_)) if Instant::now() < until => interrupt.check()?,
            Some(Answer::Refused(why) | Answer::NotYet(why)) => return Err(cluster.refused(from, &why)),
            Some(Answer::Standing(_) | Answer::Done) => {
                return Err(cluster.refused(from, "it answered another question"));
            }
            None => return Err(elsewhere(cluster, from)),
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the failure of a move for which the leader could not be asked. The leader may be on another host, whose
/// members this command cannot change. On this host, its socket may not be where this command looks, it may not answer,
/// or its process may have ended.
fn elsewhere(cluster: &Cluster<'_>, leader: ProcessId) -> Failure {
    let name = cluster.plan.name(leader);
    let place = cluster.config.display();
    if let Some(found) = find(&cluster.plan, leader).iter().find(|found| found.is_same) {
        let what = format!("`{name}` leads, and runs on this host, {}", found.where_it_is());
        return match found.missed_by(&cluster.directory, &cluster.meeting) {
            Some(why) => Failure::run(what, place, why),
            None => Failure::run(format_args!("{what}; it does not answer"), place, "ask again"),
        };
    }
    if !cluster.spread {
        return cluster.refused(leader, "its process has ended");
    }
    let what = format_args!("`{name}` leads, and is not on this host");
    let remedy = format_args!("run the command on the host of `{name}`, with the --directory of that process");
    Failure::run(what, place, remedy)
}

/// Returns the leader of a group: of the members that claim to lead, the one in the highest ballot. A former leader may
/// not have learned yet that it was replaced.
fn leader(cluster: &Cluster<'_>, group: GroupId) -> Result<(ProcessId, Standing), Failure> {
    let mut leader: Option<(ProcessId, Standing)> = None;
    let mut rest = Leaderless::default();
    let members: Vec<_> = cluster.plan.topology().members(group).collect();
    for (process, heard) in members.iter().zip(asking::all(cluster, &members, PATIENCE)?) {
        let (heard, _) = asking::elsewhere(cluster, *process, heard);
        let standing = match heard {
            Heard::Answer(standing) => standing,
            Heard::Unknown(why) => {
                rest.unknown.push(format!("`{}` cannot be asked from here: {why}", cluster.plan.name(*process)));
                continue;
            }
            Heard::Nobody | Heard::Silence(_) => {
                rest.silent.push(*process);
                continue;
            }
        };
        rest.up += 1;
        if !standing.joining {
            rest.remember.push(standing.id.clone());
        }
        if standing.leads && leader.as_ref().is_none_or(|(_, other)| other.epoch < standing.epoch) {
            leader = Some((*process, standing));
        }
    }
    leader.ok_or_else(|| rest.failure(cluster, group))
}

/// The members of a group without a leader.
#[derive(Default)]
struct Leaderless {
    /// Number of members that answered.
    up: usize,
    /// Members that answered and have the group's state.
    remember: Vec<String>,
    silent: Vec<ProcessId>,
    /// Members that cannot be asked from here, with the reasons.
    unknown: Vec<String>,
}

impl Leaderless {
    fn failure(self, cluster: &Cluster<'_>, group: GroupId) -> Failure {
        let Leaderless { up, remember, silent, unknown } = self;
        let config = &cluster.plan.config().groups()[usize::from(group.0)];
        let (all, forgot) = (config.members().len(), up - remember.len());
        if all - forgot < all / 2 + 1 && up == all && forgot < all {
            let what =
                format_args!("nobody leads `{}`: {forgot} of its {all} members have no memory of it", config.id());
            let remedy = format_args!(
                "no majority has the group's state, so no member can join: stop {} and start it anew, and the group begins from nothing; or \
                 `stentor group reset --group {}` goes on with the state that is left",
                remember.join(", "),
                config.id()
            );
            return Failure::run(what, cluster.config.display(), remedy);
        }
        let missed = live::missed(&cluster.plan, &silent, None);
        let what = vec![format!("nobody leads `{}`; {up} of its {all} members answer", config.id())];
        let runs = missed.iter().map(live::Missed::text).collect();
        let what = [what, runs, unknown].concat().join("; ");
        let place = format_args!("{}, sockets in {}", cluster.config.display(), live::looked_in(&cluster.directory));
        let start =
            "start those that do not run with `stentor node`; `stentor leader show` shows the state of all members";
        let remedy = [live::Missed::remedies(&missed), vec![start.to_owned()]].concat().join("; ");
        Failure::run(what, place, remedy)
    }
}
