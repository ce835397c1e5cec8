//! The members: processes of this same program.

use std::cell::RefCell;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::Interrupt;

use super::stage::Stage;
use crate::args::Wait;
use crate::commands::node::Served;

/// How long a node may take to stop.
const STOPPING: Duration = Duration::from_secs(10);
/// How long a node that is given up may take before it is killed.
const GIVEN_UP: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(2);

/// A process. Its standard input is held open: it stops when that ends, by whatever cause.
struct Node {
    name: String,
    child: Child,
    /// It was killed on purpose.
    killed: bool,
}

/// All of them, by process. None outlives this.
pub(super) struct Nodes(RefCell<Vec<Node>>);

fn spawn(plan: &ClusterRuntime, stage: &Stage, wait: Wait, process: ProcessId, life: u32) -> Result<Node, Failure> {
    let program = std::env::current_exe().map_err(|error| unstarted("stentor", &error))?;
    let name = plan.name(process);
    let mut command = Command::new(program);
    command.args(["node", "--json", "--quiet", "--operations", "--until-eof", "--id", name]);
    command.args(["--wait", wait.to_possible_value().expect("none is skipped").get_name()]);
    command.args(stage.arguments(name, life));
    command.arg("--config").arg(stage.config()).arg("--directory").arg(stage.sockets());
    command.arg("--history").arg(stage.history(plan, process, life)).arg("--life").arg(life.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A signal from the terminal is for us: we end them in order.
    let child = command.process_group(0).spawn().map_err(|error| unstarted(name, &error))?;
    Ok(Node { name: name.to_owned(), child, killed: false })
}

impl Nodes {
    pub(super) fn start(plan: &ClusterRuntime, stage: &Stage, wait: Wait) -> Result<Self, Failure> {
        let nodes = Nodes(RefCell::new(Vec::new()));
        for process in (0..plan.topology().all_members() as u16).map(ProcessId) {
            let node = spawn(plan, stage, wait, process, 1)?;
            nodes.0.borrow_mut().push(node);
        }
        Ok(nodes)
    }

    /// Kills a process as `kill -9` does. Returns once it is gone.
    pub(super) fn kill(&self, process: ProcessId) -> Result<(), Failure> {
        let mut nodes = self.0.borrow_mut();
        let node = &mut nodes[process.index()];
        node.killed = true;
        node.child.kill().and_then(|()| node.child.wait()).map(drop).map_err(|error| unstarted(&node.name, &error))
    }

    /// Starts a process that was killed again, in its second life.
    pub(super) fn restart(
        &self,
        plan: &ClusterRuntime,
        stage: &Stage,
        wait: Wait,
        process: ProcessId,
    ) -> Result<(), Failure> {
        let node = spawn(plan, stage, wait, process, 2)?;
        self.0.borrow_mut()[process.index()] = node;
        Ok(())
    }

    /// Fails if one of them is gone that should not be.
    pub(super) fn check(&self) -> Result<(), Failure> {
        for node in self.0.borrow_mut().iter_mut().filter(|node| !node.killed) {
            if let Ok(Some(status)) = node.child.try_wait() {
                return Err(node.gone(status));
            }
        }
        Ok(())
    }

    /// Stops them and returns what they say.
    pub(super) fn stop(&mut self, interrupt: &Interrupt) -> Result<Vec<Served>, Failure> {
        self.check()?;
        let nodes = self.0.get_mut();
        for node in nodes.iter_mut() {
            drop(node.child.stdin.take());
        }
        let until = Instant::now() + STOPPING;
        nodes.iter_mut().map(|node| node.stopped(until, interrupt)).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let nodes = self.0.get_mut();
        for node in nodes.iter_mut() {
            drop(node.child.stdin.take());
        }
        let until = Instant::now() + GIVEN_UP;
        for node in nodes.iter_mut() {
            while matches!(node.child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
            // Nothing happens if it has ended.
            let _ = node.child.kill();
            let _ = node.child.wait();
        }
    }
}

impl Node {
    fn stopped(&mut self, until: Instant, interrupt: &Interrupt) -> Result<Served, Failure> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => break,
                Ok(Some(status)) => return Err(self.gone(status)),
                Ok(None) if Instant::now() < until => interrupt.check()?,
                Ok(None) => {
                    let what = format_args!("`{}` does not stop", self.name);
                    return Err(Failure::run(what, "stentor demo", "it is killed; report this as a bug"));
                }
                Err(error) => return Err(unstarted(&self.name, &error)),
            }
            std::thread::sleep(LOOK);
        }
        let said = read(self.child.stdout.take());
        serde_json::from_str(&said).map_err(|error| {
            let what = format_args!("`{}` said nothing that makes sense: {error}", self.name);
            Failure::run(what, "stentor demo", "report this as a bug")
        })
    }

    fn gone(&mut self, status: ExitStatus) -> Failure {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("with exit code {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "somehow".to_owned(),
        };
        let said = read(self.child.stderr.take());
        let said = said.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        let what = format_args!("`{}` ended before it was told to, {how}{said}", self.name);
        Failure::run(what, "stentor demo", "nothing was judged; start it again")
    }
}

/// What a process that ended left in a pipe.
fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not there.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn unstarted(name: &str, error: &std::io::Error) -> Failure {
    let what = format_args!("cannot start `{name}`");
    let otherwise = "allow more processes and memory; `stentor doctor` says what this machine can do";
    Failure::system(what, error, "stentor demo", otherwise)
}
