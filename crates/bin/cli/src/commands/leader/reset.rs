//! `stentor group reset`: an operator begins a new incarnation of a group.

use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::operator::{Answer, Question, Standing};
use stentor::runtime::GroupId;
use stentor_fabric::ProcessId;
use stentor_multicast::{Incarnation, ProcessRole};
use stentor_support::live::{self, Interrupt, unstarted};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use super::judge::number;
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
    /// Number of deliveries of the group's leader.
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
    if let Some(ends) = args.ends.as_ref().filter(|ends| ends.parse::<Incarnation>().is_err()) {
        let what = format_args!("`{ends}` is no incarnation");
        return Err(Failure::usage(what, "--ends", "run the command without --ends to see the group's incarnation"));
    }
    let standings = standings(&cluster, group)?;
    let Some(ends) = &args.ends else { return Err(explain(&args.group, &standings)) };
    let (by, before) = candidate(&cluster, group, args, ends, &standings)?;
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
            let remedy = "start members of the group until a majority runs: the reset then goes on by itself; \
                          `stentor leader show` shows the state of the members";
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

/// Asks the members of a group for their state; `None` for a member that does not answer.
fn standings(cluster: &Cluster<'_>, group: GroupId) -> Result<Vec<(ProcessId, Option<Standing>)>, Failure> {
    let members: Vec<_> = cluster.plan.topology().members(group).collect();
    let heard = asking::all(cluster, &members, PATIENCE)?;
    Ok(members.into_iter().zip(heard.into_iter().map(Heard::answer)).collect())
}

/// Returns a failure that explains what a reset would lose, and which options a reset needs.
fn explain(group: &str, standings: &[(ProcessId, Option<Standing>)]) -> Failure {
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
        "of {group}, {}{}; a reset ends its incarnation: deliveries of it that are not in the chosen state are lost, and so are \
         the messages in flight to it",
        if have.is_empty() { "no member answers".to_owned() } else { have },
        if silent > 0 { format!(", {silent} do not answer, and may have more") } else { String::new() },
    );
    let furthest = there.iter().filter(|standing| !standing.joining).max_by_key(|standing| standing.delivered);
    let empty = there.iter().filter(|standing| standing.joining).max_by_key(|standing| number(&standing.ends));
    let keep = furthest
        .map(|standing| format!("`--ends {} --from {}` keeps what that member has", standing.ends, standing.id));
    let begin = empty.map(|standing| format!("`--ends {} --empty` begins from nothing", standing.ends));
    let choices: Vec<_> = keep.into_iter().chain(begin).collect();
    let remedy = if choices.is_empty() { "start members of the group".to_owned() } else { choices.join("; ") };
    Failure::usage(what, "--ends", remedy)
}

/// Returns the member that begins the incarnation, with its state.
fn candidate(
    cluster: &Cluster<'_>,
    group: GroupId,
    args: &GroupReset,
    ends: &str,
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
            Failure::run(what, cluster.config.display(), "name a member that runs, or begin with nothing: --empty")
        });
    }
    if !args.empty {
        let what = "neither --from nor --empty is given";
        return Err(Failure::usage(
            what,
            "--ends",
            "name the member with whose state the group begins, --from ID, or begin with nothing, --empty",
        ));
    }
    let mut joins = Vec::new();
    for (process, standing) in standings {
        if let Some(standing) = standing.as_ref().filter(|standing| standing.joining) {
            let is_here = cluster.ask(*process, &Question::Show)?.is_some();
            joins.push((is_here, *process, standing));
        }
    }
    // This command can ask only processes of this host to begin. A process refuses if it knows another incarnation than
    // `ends`.
    let chosen = joins.into_iter().max_by_key(|(is_here, _, standing)| (*is_here, standing.ends == ends));
    chosen.map(|(_, process, standing)| (process, standing.clone())).ok_or_else(|| {
        let what = format_args!("no member of {} that answers is without memory", args.group);
        let remedy =
            "stop a member and start it again, so that it begins the group from nothing; or name a member with --from";
        Failure::run(what, cluster.config.display(), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::super::member::tests::follower;
    use super::*;

    #[test]
    fn reset_from_nothing_ends_the_newest_known_incarnation() {
        let joins = |n, id: &str, ends: &str| {
            let standing = Standing { joining: true, ends: ends.to_owned(), ..follower(id, "g1.1", None) };
            (ProcessId(n), Some(standing))
        };
        let standings =
            [joins(0, "g1.1", "9-0000000a"), joins(1, "g1.2", "10-0000000b"), joins(2, "g1.3", "2-0000000c")];
        let told = explain("g1", &standings).to_string();
        assert!(told.contains("`--ends 10-0000000b --empty` begins from nothing"), "{told}");
    }
}
