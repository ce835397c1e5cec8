//! `stentor group reset`: a new incarnation of a group, by the word of an operator.

use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::runtime::GroupId;
use stentor_fabric::ProcessId;
use stentor_multicast::{Incarnation, ProcessRole};
use stentor_support::live::{self, Answer, Interrupt, Question, Standing, unstarted};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use super::{Cluster, Heard, LOOK, PATIENCE, asking};
use crate::args::GroupReset;

/// The document of `group reset`.
#[derive(Serialize)]
struct Done {
    group: String,
    /// The incarnation that ended.
    ended: String,
    incarnation: String,
    leader: String,
    /// Deliveries that the state contains with which it began.
    delivered: u64,
    seconds: f64,
}

impl Human for Done {
    fn human(&self, _: Style) -> String {
        let Done { group, ended, incarnation, leader, delivered, seconds } = self;
        format!(
            "{group} goes on in incarnation {incarnation}, which ended {ended}: {leader} leads, with {delivered} deliveries; \
             {seconds:.3} s\n"
        )
    }
}

pub(crate) fn reset(args: &GroupReset, output: Output) -> Result<Verdict, Failure> {
    let cluster = Cluster::of(&args.place)?;
    let interrupt = Interrupt::catch()?;
    let named = live::groups(&cluster.plan, std::slice::from_ref(&args.group), cluster.config)?;
    let group = named.first().copied().unwrap_or(GroupId(0));
    let standings = standings(&cluster, group)?;
    let Some(ends) = &args.ends else { return Err(explain(args, &standings)) };
    if ends.parse::<Incarnation>().is_err() {
        let what = format_args!("`{ends}` is no incarnation");
        return Err(Failure::usage(what, "--ends", "without --ends the command says which one ends"));
    }
    let (by, before) = candidate(&cluster, group, args, &standings)?;
    let since = Instant::now();
    match cluster.ask(by, &Question::Reset { ends: ends.clone(), empty: args.empty })? {
        Some(Answer::Moving) => {}
        Some(Answer::Refused(why) | Answer::NotYet(why)) => return Err(cluster.refused(by, &why)),
        Some(Answer::Standing(_) | Answer::Done) => return Err(cluster.refused(by, "it answered another question")),
        None => {
            let what = format_args!("`{}` does not answer on this host", before.id);
            return Err(Failure::run(what, cluster.config.display(), "reset the group on the host of that member"));
        }
    }
    let after = loop {
        match cluster.standing(by)? {
            Some(standing) if standing.leads && standing.incarnation != before.incarnation => break standing,
            _ => interrupt.check()?,
        }
        if since.elapsed() > Duration::from_secs(args.timeout) {
            let what =
                format_args!("no majority of {} has promised `{}` after {} s", args.group, before.id, args.timeout);
            let remedy = "start members of the group until a majority is there: it goes on by itself then; \
                          `stentor leader show` tells how they stand";
            return Err(Failure::run(what, cluster.config.display(), remedy));
        }
        std::thread::sleep(LOOK);
    };
    let done = Done {
        group: args.group.clone(),
        ended: ends.clone(),
        incarnation: after.incarnation,
        leader: after.id,
        delivered: after.delivered,
        seconds: since.elapsed().as_secs_f64(),
    };
    output.conclude(&done, Verdict::Good)
}

/// How the members of a group stand that answer.
fn standings(cluster: &Cluster<'_>, group: GroupId) -> Result<Vec<(ProcessId, Option<Standing>)>, Failure> {
    let members: Vec<_> = cluster.plan.topology().members(group).collect();
    let heard = asking::all(cluster, &members, PATIENCE)?;
    Ok(members.into_iter().zip(heard.into_iter().map(Heard::answer)).collect())
}

/// Says what a reset would do.
fn explain(args: &GroupReset, standings: &[(ProcessId, Option<Standing>)]) -> Failure {
    let group = &args.group;
    let there: Vec<_> = standings.iter().filter_map(|(_, standing)| standing.as_ref()).collect();
    let how = |standing: &&Standing| match (standing.joining, &standing.hindrance) {
        (false, _) => {
            format!("{} has delivered {} in incarnation {}", standing.id, standing.delivered, standing.incarnation)
        }
        (true, Some(why)) => format!("{} has no memory of it ({why})", standing.id),
        (true, None) => format!("{} has no memory of it", standing.id),
    };
    let have = there.iter().map(how).collect::<Vec<_>>().join(", ");
    let silent = standings.len() - there.len();
    let what = format_args!(
        "of {group}, {}{}; a reset ends its incarnation: what was delivered in it and is not in the state that is chosen is \
         lost, and so is what was under way to it",
        if have.is_empty() { "nobody answers".to_owned() } else { have },
        if silent > 0 { format!(", {silent} do not answer, and may have more") } else { String::new() },
    );
    let furthest = there.iter().filter(|standing| !standing.joining).max_by_key(|standing| standing.delivered);
    let empty = there.iter().filter(|standing| standing.joining).max_by_key(|standing| standing.ends.clone());
    let keep = furthest
        .map(|standing| format!("`--ends {} --from {}` keeps what that member has", standing.ends, standing.id));
    let begin = empty.map(|standing| format!("`--ends {} --empty` begins from nothing", standing.ends));
    let choices: Vec<_> = keep.into_iter().chain(begin).collect();
    let remedy = if choices.is_empty() { "start members of the group".to_owned() } else { choices.join("; ") };
    Failure::usage(what, "--ends", remedy)
}

/// The member that begins the incarnation.
fn candidate(
    cluster: &Cluster<'_>,
    group: GroupId,
    args: &GroupReset,
    standings: &[(ProcessId, Option<Standing>)],
) -> Result<(ProcessId, Standing), Failure> {
    if let Some(from) = &args.from {
        let process = cluster.plan.process(from).map_err(|error| unstarted(error, cluster.config))?;
        if !matches!(cluster.plan.topology().role(process), Some(ProcessRole::Member { group: of, .. }) if of == group)
        {
            let what = format_args!("`{from}` is not a member of {}", args.group);
            return Err(Failure::usage(what, "--from", "name one of its members"));
        }
        let found = standings.iter().find(|(member, _)| *member == process).and_then(|(_, standing)| standing.clone());
        return found.map(|standing| (process, standing)).ok_or_else(|| {
            let what = format_args!("`{from}` does not answer");
            Failure::run(
                what,
                cluster.config.display(),
                "name a member that runs, or let it begin from nothing: --empty",
            )
        });
    }
    if !args.empty {
        let what = "nothing says with what the group goes on";
        return Err(Failure::usage(
            what,
            "--ends",
            "name the member whose state it begins with, --from ID, or say --empty",
        ));
    }
    let joins = |(process, standing): &(ProcessId, Option<Standing>)| {
        standing.clone().filter(|standing| standing.joining).map(|standing| (*process, standing))
    };
    standings.iter().find_map(joins).ok_or_else(|| {
        let what = format_args!("no member of {} that answers is without memory", args.group);
        let remedy = "stop one and start it again: it begins the group from nothing; or name a member with --from";
        Failure::run(what, cluster.config.display(), remedy)
    })
}
