//! `stentor stop`: ends the members of one cluster that run on this host, and no other processes.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::operator::{Answer, Question, ask, is_listened_to, listener};
use stentor::runtime::{ClusterRuntime, Found, as_pid, find};
use stentor_fabric::ProcessId;
use stentor_support::live::{self, Interrupt, is_stopped, unstarted};
use stentor_support::{Failure, Human, Output, Style, Verdict, columns};

use crate::args::Stop;

/// Interval at which a stopping member is checked.
const LOOK: Duration = Duration::from_millis(20);

/// The results for all members.
#[derive(Serialize)]
struct Stopped {
    ok: bool,
    members: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    id: String,
    /// State of the member: `stopped`, `absent`, `running`, `silent`, `refused` or `elsewhere`.
    state: &'static str,
    /// Process id, if the process is not where the configuration and the directory say, or does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    /// Reason of a refusal, or the place where the process was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Human for Stopped {
    fn human(&self, _: Style) -> String {
        let tell = |member: &Member| match member.state {
            "absent" => "does not run on this host".to_owned(),
            "running" => "was asked to stop and still runs".to_owned(),
            "silent" => silent(member.pid),
            "elsewhere" => "runs on this host".to_owned(),
            state => state.to_owned(),
        };
        let tell = |member: &Member| match &member.why {
            Some(why) if member.state == "silent" => format!("{} ({why})", tell(member)),
            Some(why) => format!("{}: {why}", tell(member)),
            None => tell(member),
        };
        columns(&self.members.iter().map(|member| vec![member.id.clone(), tell(member)]).collect::<Vec<_>>())
    }
}

/// Describes a member that does not answer.
fn silent(pid: Option<i32>) -> String {
    let place = pid.map_or(String::new(), |pid| format!(", {},", as_pid(pid)));
    let why = match pid.filter(|pid| is_stopped(*pid)) {
        Some(pid) => format!("it is stopped (`kill -CONT {pid}`)"),
        None => "it is stopped (kill -CONT), or very busy".to_owned(),
    };
    format!("is there{place} and does not answer: {why}; the request is withdrawn, ask again")
}

pub(super) fn run(args: &Stop, output: Output) -> Result<Verdict, Failure> {
    let config = &args.place.config;
    let plan = live::plan(config)?;
    let interrupt = Interrupt::catch()?;
    let members = if args.id.is_empty() {
        (0..plan.topology().all_members() as u16).map(ProcessId).collect()
    } else {
        args.id.iter().map(|id| member(&plan, id, args)).collect::<Result<Vec<_>, _>>()?
    };
    let (directory, meeting) = (live::directory(args.place.directory.as_ref()), plan.meeting_name());
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let stop = |process: ProcessId| {
        let paths =
            || stentor_host::all_beside(&directory, &meeting, process).map_err(|error| unstarted(error.into(), config));
        let ended = end(&plan, process, &paths, until, &interrupt)?;
        if ended.state == "absent" { end_elsewhere(&plan, process, until, &interrupt) } else { Ok(ended) }
    };
    let stopped = live::at_once(&members, |process| stop(*process));
    let members = stopped.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let ok = members.iter().all(|member| ["stopped", "absent"].contains(&member.state));
    output.conclude(&Stopped { ok, members }, Verdict::of(ok))
}

fn member(plan: &ClusterRuntime, id: &str, args: &Stop) -> Result<ProcessId, Failure> {
    let process = plan.process(id).map_err(|error| unstarted(error, &args.place.config))?;
    if process.index() < plan.topology().all_members() {
        return Ok(process);
    }
    let what = format_args!("`{id}` is a client");
    Err(Failure::usage(what, "--id", "name members of groups; a client ends when its input does, or on Ctrl-C"))
}

impl Member {
    fn new(id: &str, state: &'static str) -> Self {
        Member { id: id.to_owned(), state, pid: None, why: None }
    }
}

/// Ends a member that does not listen at the place that the configuration names, for example because the file was
/// edited after the start of the member, or because the member was started with another directory. A process with the
/// same names is reported and not touched if it was started from another file, without a common member address.
fn end_elsewhere(
    plan: &ClusterRuntime,
    process: ProcessId,
    until: Instant,
    interrupt: &Interrupt,
) -> Result<Member, Failure> {
    let name = plan.name(process);
    let mut all = find(plan, process);
    all.sort_by_key(|found| !found.is_same);
    let Some(found) = all.first() else { return Ok(Member::new(name, "absent")) };
    let (pid, place) = (Some(found.pid()), found.where_it_is());
    if !found.is_same {
        let why = format!("{place}: another file, so it was not touched; {}", found.remedy(name));
        return Ok(Member { pid, why: Some(why), ..Member::new(name, "elsewhere") });
    }
    let ended = end(plan, process, &|| Ok(found.paths()), until, interrupt)?;
    Ok(match ended.state {
        // The process holds its lock, but has no control socket, or its socket cannot be reached from here.
        "absent" => {
            let why = format!("{place}: nobody listens there; {}", found.kill());
            Member { pid, why: Some(why), ..Member::new(name, "elsewhere") }
        }
        _ => {
            Member { pid, why: Some(ended.why.map_or(place.clone(), |why| format!("{why}; it ran {place}"))), ..ended }
        }
    })
}

/// Asks one member to end, and waits until it has.
fn end(
    plan: &ClusterRuntime,
    process: ProcessId,
    paths: &dyn Fn() -> Result<Vec<PathBuf>, Failure>,
    until: Instant,
    interrupt: &Interrupt,
) -> Result<Member, Failure> {
    let name = plan.name(process);
    let refused = |why| Member { why: Some(why), ..Member::new(name, "refused") };
    let asked = paths()?;
    let running: Vec<_> = find(plan, process).into_iter().filter(|found| found.is_same).collect();
    match ask(&asked, &Question::Stop) {
        Ok(None) => return Ok(Member::new(name, "absent")),
        Ok(Some(Answer::Done)) => {}
        Ok(Some(Answer::Refused(why) | Answer::NotYet(why))) => return Ok(refused(why)),
        Ok(Some(Answer::Standing(_) | Answer::Moving)) => {
            return Ok(refused("it answered another question".to_owned()));
        }
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            return Ok(Member { pid: listener(&asked), ..Member::new(name, "silent") });
        }
        // The process may have ended before it answered, which is checked next.
        Err(_) => {}
    }
    // A member closes its control socket before it finishes its output and its history, and frees its name last. A
    // socket that a killed process left may still exist, but no process listens on it.
    while paths()?.iter().any(|path| is_listened_to(path)) || running.iter().any(Found::still_runs) {
        interrupt.check()?;
        if Instant::now() >= until {
            return Ok(Member::new(name, "running"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(Member::new(name, "stopped"))
}
