//! `stentor stop`: ends the members of one cluster that run on this host, and nothing else.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor::runtime::{Plan, ShmFabric};
use stentor_fabric::ProcessId;

use crate::args::Stop;
use crate::failure::{Failure, Verdict};
use crate::live::{self, Answer, Interrupt, Question, ask, unstarted};
use crate::output::{Human, Output};
use crate::style::{Style, columns};

/// Between two looks whether a member is gone.
const LOOK: Duration = Duration::from_millis(20);

/// What became of the members.
#[derive(Serialize)]
struct Stopped {
    ok: bool,
    members: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    id: String,
    /// `stopped`, `absent`, `running`, `silent` or `refused`.
    state: &'static str,
    /// Why it refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Human for Stopped {
    fn human(&self, _: Style) -> String {
        let tell = |member: &Member| match member.state {
            "absent" => "does not run on this host".to_owned(),
            "running" => "was told to stop and still runs".to_owned(),
            "silent" => "is there and does not answer: it is stopped (kill -CONT), or very busy".to_owned(),
            state => member.why.as_ref().map_or_else(|| state.to_owned(), |why| format!("{state}: {why}")),
        };
        columns(&self.members.iter().map(|member| vec![member.id.clone(), tell(member)]).collect::<Vec<_>>())
    }
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
    let (directory, meeting) = (live::directory(args.place.directory.as_ref()), live::meeting_name(&plan));
    let until = Instant::now() + Duration::from_secs(args.timeout);
    let stop = |process: ProcessId| {
        let paths =
            || ShmFabric::all_beside(&directory, &meeting, process).map_err(|error| unstarted(error.into(), config));
        let (state, why) = end(&paths, until, &interrupt)?;
        Ok(Member { id: plan.name(process).to_owned(), state, why })
    };
    let stopped = live::at_once(&members, |process| stop(*process));
    let members = stopped.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let ok = members.iter().all(|member| ["stopped", "absent"].contains(&member.state));
    output.report(&Stopped { ok, members })?;
    Ok(Verdict::of(ok))
}

fn member(plan: &Plan, id: &str, args: &Stop) -> Result<ProcessId, Failure> {
    let process = plan.process(id).map_err(|error| unstarted(error, &args.place.config))?;
    if process.index() < plan.topology().all_members() {
        return Ok(process);
    }
    let what = format_args!("`{id}` is a client");
    Err(Failure::usage(what, "--id", "name members of groups; a client ends when its input does, or on Ctrl-C"))
}

/// Tells one process to end, and waits until it has.
fn end(
    paths: &dyn Fn() -> Result<Vec<PathBuf>, Failure>,
    until: Instant,
    interrupt: &Interrupt,
) -> Result<(&'static str, Option<String>), Failure> {
    match ask(&paths()?, &Question::Stop) {
        Ok(None) => return Ok(("absent", None)),
        Ok(Some(Answer::Done)) => {}
        Ok(Some(Answer::Refused(why) | Answer::NotYet(why))) => return Ok(("refused", Some(why))),
        Ok(Some(Answer::Standing(_) | Answer::Moving)) => {
            return Ok(("refused", Some("it answered another question".to_owned())));
        }
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            return Ok(("silent", None));
        }
        // It may have ended before it answered: that shows.
        Err(_) => {}
    }
    // Its sockets go last. One that a killed process left may lie beside them, and nobody listens there.
    while paths()?.iter().any(|path| is_listened_to(path)) {
        interrupt.check()?;
        if Instant::now() >= until {
            return Ok(("running", None));
        }
        std::thread::sleep(LOOK);
    }
    Ok(("stopped", None))
}

/// Returns whether a process listens at a socket.
fn is_listened_to(path: &Path) -> bool {
    let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
    UnixStream::connect(path).map_or_else(|error| !gone.contains(&error.kind()), |_| true)
}
