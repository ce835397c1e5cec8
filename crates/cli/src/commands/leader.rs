//! `stentor leader`: who leads, and who is to.

mod report;

use std::io::ErrorKind;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stentor::runtime::{GroupId, Plan, ShmFabric};
use stentor_fabric::ProcessId;
use stentor_multicast::Place;

use crate::args::{LeaderCommand, LeaderMove, LeaderShow, Where};
use crate::failure::{Failure, Verdict};
use crate::live::{self, Answer, Interrupt, Question, Standing, ask, unstarted};
use crate::output::Output;
use report::{Moved, Shown};

/// Between two looks whether the other leads.
const LOOK: Duration = Duration::from_millis(2);
/// The time for which a request that is refused at present is repeated.
const SOON: Duration = Duration::from_secs(2);

pub(super) fn run(command: &LeaderCommand, output: Output) -> Result<Verdict, Failure> {
    match command {
        LeaderCommand::Show(args) => show(args, output),
        LeaderCommand::Move(args) => hand_over(args, output),
    }
}

/// What comes of a question.
enum Heard<T> {
    Answer(T),
    /// No process is there.
    Nobody,
    /// A process is there and says nothing: it is stopped, or very busy.
    Silence,
}

impl<T> Heard<T> {
    fn answer(self) -> Option<T> {
        match self {
            Heard::Answer(answer) => Some(answer),
            Heard::Nobody | Heard::Silence => None,
        }
    }
}

/// A cluster whose processes run, or do not.
struct Cluster<'a> {
    plan: Plan,
    config: &'a Path,
    directory: PathBuf,
    /// The directory in it.
    meeting: String,
    /// Members may be on other hosts, where they cannot be asked.
    spread: bool,
}

impl<'a> Cluster<'a> {
    fn of(place: &'a Where) -> Result<Self, Failure> {
        let plan = live::plan(&place.config)?;
        let (meeting, spread) = (live::meeting_name(&plan), plan.config().fabric().is_between_hosts());
        let directory = live::directory(place.directory.as_ref());
        Ok(Cluster { plan, config: &place.config, directory, meeting, spread })
    }

    /// `None`: it does not run, or is silent.
    fn ask(&self, process: ProcessId, question: &Question) -> Result<Option<Answer>, Failure> {
        Ok(match self.hear(process, question)? {
            Heard::Answer(answer) => Some(answer),
            Heard::Nobody | Heard::Silence => None,
        })
    }

    fn hear(&self, process: ProcessId, question: &Question) -> Result<Heard<Answer>, Failure> {
        let name = self.plan.name(process);
        let paths = ShmFabric::all_beside(&self.directory, &self.meeting, process)
            .map_err(|error| unstarted(error.into(), self.config))?;
        match ask(&paths, question) {
            Ok(Some(answer)) => Ok(Heard::Answer(answer)),
            Ok(None) => Ok(Heard::Nobody),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => Ok(Heard::Silence),
            Err(error) => {
                let what = format_args!("`{name}` does not answer as it should: {error}");
                Err(Failure::run(what, self.directory.display(), "look at what it says; stop it and start it again"))
            }
        }
    }

    /// How a member stands, as it says.
    fn look(&self, process: ProcessId) -> Result<Heard<Standing>, Failure> {
        match self.hear(process, &Question::Show)? {
            Heard::Nobody => Ok(Heard::Nobody),
            Heard::Silence => Ok(Heard::Silence),
            Heard::Answer(Answer::Standing(standing)) => Ok(Heard::Answer(standing)),
            Heard::Answer(Answer::Moving | Answer::Done) => Err(self.refused(process, "it answered another question")),
            Heard::Answer(Answer::Refused(why) | Answer::NotYet(why)) => Err(self.refused(process, &why)),
        }
    }

    /// The same of several at once: those that are silent take their time together.
    fn look_at(&self, processes: &[ProcessId]) -> Result<Vec<Heard<Standing>>, Failure> {
        std::thread::scope(|scope| {
            let looks: Vec<_> = processes.iter().map(|process| scope.spawn(|| self.look(*process))).collect();
            looks.into_iter().map(|look| look.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    /// `None`: it does not run, or is silent.
    fn standing(&self, process: ProcessId) -> Result<Option<Standing>, Failure> {
        Ok(self.look(process)?.answer())
    }

    fn refused(&self, process: ProcessId, why: &str) -> Failure {
        let what = format_args!("`{}` refuses: {why}", self.plan.name(process));
        Failure::run(what, self.config.display(), "`stentor leader show` tells how all members stand")
    }
}

fn show(args: &LeaderShow, output: Output) -> Result<Verdict, Failure> {
    let cluster = Cluster::of(&args.place)?;
    let groups = if args.group.is_empty() {
        cluster.plan.topology().group_ids().collect()
    } else {
        live::groups(&cluster.plan, &args.group, cluster.config)?
    };
    let mut shown = Shown::new(cluster.spread, cluster.plan.config().election_times().max);
    for group in groups {
        let name = cluster.plan.config().groups()[usize::from(group.0)].id();
        let members: Vec<_> = cluster.plan.topology().members(group).collect();
        for (process, heard) in members.iter().zip(cluster.look_at(&members)?) {
            shown.add(name, cluster.plan.name(*process), heard);
        }
    }
    output.report(&shown)?;
    Ok(Verdict::of(shown.ok()))
}

fn hand_over(args: &LeaderMove, output: Output) -> Result<Verdict, Failure> {
    let cluster = Cluster::of(&args.place)?;
    let interrupt = Interrupt::catch()?;
    let to = cluster.plan.process(&args.to).map_err(|error| unstarted(error, cluster.config))?;
    let Some(Place::Member { group, .. }) = cluster.plan.topology().place(to) else {
        let what = format_args!("`{}` is a client", args.to);
        return Err(Failure::usage(what, "--to", "name a member of a group"));
    };
    let since = Instant::now();
    let (from, before) = nominate(&cluster, group, to, args, &interrupt)?;
    let epoch = loop {
        match cluster.standing(to)? {
            Some(standing) if standing.leads && (from == to || standing.epoch > before.epoch) => break standing.epoch,
            Some(_) => {}
            // On another host: the one that led follows it.
            None => match cluster.standing(from)? {
                Some(standing) if standing.leader == args.to && standing.epoch > before.epoch => break standing.epoch,
                _ => {}
            },
        }
        interrupt.check()?;
        if since.elapsed() > Duration::from_secs(args.timeout) {
            let what = format_args!("`{}` does not lead after {} s", args.to, args.timeout);
            let remedy = "`stentor leader show` tells how all members stand; a group without a majority has no leader";
            return Err(Failure::run(what, cluster.config.display(), remedy));
        }
        std::thread::sleep(LOOK);
    };
    let moved = Moved {
        group: cluster.plan.config().groups()[usize::from(group.0)].id().to_owned(),
        from: before.id,
        to: args.to.clone(),
        epoch,
        seconds: since.elapsed().as_secs_f64(),
    };
    output.report(&moved)?;
    Ok(Verdict::Good)
}

/// Asks the leader to hand over and returns its id. A refusal that may pass is asked again for a moment: a
/// leader of a group that began just now is named soon, and a member that is being taken in is ready soon.
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
            None => return Err(cluster.refused(from, "it is gone")),
        }
        std::thread::sleep(LOOK);
    }
}

/// Of those who say that they lead, the one in the highest ballot: another may not have heard of it yet.
fn leader(cluster: &Cluster<'_>, group: GroupId) -> Result<(ProcessId, Standing), Failure> {
    let mut leader: Option<(ProcessId, Standing)> = None;
    let (mut up, mut heard, mut remember) = (0, None, Vec::new());
    let members: Vec<_> = cluster.plan.topology().members(group).collect();
    for (process, said) in members.iter().zip(cluster.look_at(&members)?) {
        let Some(standing) = said.answer() else { continue };
        up += 1;
        if !standing.joining {
            remember.push(standing.id.clone());
        }
        heard = heard.max(Some((standing.epoch, standing.leader.clone())));
        if standing.leads && leader.as_ref().is_none_or(|(_, other)| other.epoch < standing.epoch) {
            leader = Some((*process, standing));
        }
    }
    leader.ok_or_else(|| {
        let config = &cluster.plan.config().groups()[usize::from(group.0)];
        let all = config.members().len();
        if let Some((_, elsewhere)) = heard.filter(|_| cluster.spread && up < all) {
            let what = format_args!("who leads `{}` is not on this host; {up} of its {all} members are", config.id());
            let remedy = format_args!("ask on the host of `{elsewhere}`, the last leader that those here know");
            return Failure::run(what, cluster.config.display(), remedy);
        }
        let forgot = up - remember.len();
        if all - forgot < all / 2 + 1 && up == all && forgot < all {
            let what = format_args!("nobody leads `{}`: {forgot} of its {all} members have no memory of it", config.id());
            let remedy = format_args!(
                "no majority remembers, so nobody is taken in: stop {} and start it anew; the group begins from nothing",
                remember.join(", ")
            );
            return Failure::run(what, cluster.config.display(), remedy);
        }
        let here = if cluster.spread { " on this host" } else { "" };
        let what = format_args!("nobody leads `{}`; {up} of its {all} members run{here}", config.id());
        let place = format_args!("{}, sockets in {}", cluster.config.display(), cluster.directory.display());
        let remedy = "start its members with `stentor node`, and name the --directory that they were told";
        Failure::run(what, place, remedy)
    })
}
