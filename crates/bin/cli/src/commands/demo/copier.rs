//! The switch that copies packets: a process of this same program.

use std::cell::RefCell;
use std::io::Read;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use stentor_soft_switch::{Shown, example};
use stentor_support::args::name_of;
use stentor_support::live::{Interrupt, RunDirectory, this_program};
use stentor_support::{Failure, Style};

use super::stage::{Stage, switch_places};
use crate::args::Wait;

/// Longest time that the switch may take to stop.
const STOPPING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);

/// The work of a switch.
#[derive(Clone, Serialize)]
pub(super) struct Switched {
    /// Number of copies that the switch sent, including those of retransmitted packets.
    pub(super) copies: u64,
    /// Number of records that the switch was asked to copy, counted once for each receiver.
    pub(super) copies_asked: u64,
}

impl Switched {
    /// Returns whether the switch was asked for copies and made some.
    pub(super) fn is_used(&self) -> bool {
        self.copies > 0 && self.copies_asked > 0
    }

    /// Returns a description.
    pub(super) fn human(&self, style: Style) -> String {
        let Switched { copies, copies_asked } = self;
        let failed = if self.is_used() { String::new() } else { format!("{}: ", style.bad("failed")) };
        format!("{failed}the switch made {copies} copies, asked for {copies_asked}")
    }
}

/// The process of a switch. It stops when its standard input ends, which also happens when this process dies.
pub(super) struct Copier {
    child: RefCell<Child>,
}

impl Copier {
    /// Starts a switch for a cluster. The cluster's key is in the stage's directory.
    pub(super) fn start(stage: &Stage, cluster: &str, wait: Wait) -> Result<Self, Failure> {
        let (forward, backward, control) = switch_places();

        let text = example(cluster, forward, backward, control, &format!("file:{}", RunDirectory::KEY));
        let config = stage.write("switch.toml", text)?;
        let mut command = this_program().map_err(|error| unstarted(&error))?;
        command.args(["switch", "--json", "--quiet", "--until-eof"]);
        command.args(["--wait", &name_of(&wait)]);
        command.arg("--config").arg(&config).arg("--directory").arg(stage.sockets());
        // Standard error is inherited, so that the user sees the switch's errors.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| unstarted(&error))?;
        Ok(Copier { child: RefCell::new(child) })
    }

    /// Returns an error if the switch has ended unexpectedly.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.child.borrow_mut().try_wait() {
            Ok(Some(status)) => Err(failed(status)),
            _ => Ok(()),
        }
    }

    /// Stops the switch and returns its work. `copies_asked` is the number of copies that it was asked for.
    pub(super) fn stop(&mut self, copies_asked: u64, interrupt: &Interrupt) -> Result<Switched, Failure> {
        self.check()?;
        let child = self.child.get_mut();
        drop(child.stdin.take());
        let until = Instant::now() + STOPPING;
        let status = loop {
            match child.try_wait().map_err(|error| unstarted(&error))? {
                Some(status) => break status,
                None if Instant::now() < until => interrupt.check()?,
                None => return Err(wrong("does not stop")),
            }
            std::thread::sleep(LOOK);
        };
        if !status.success() {
            return Err(failed(status));
        }
        let mut said = String::new();
        // A pipe that cannot be read counts as empty.
        let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut said));
        let shown: Shown =
            serde_json::from_str(&said).map_err(|error| wrong(&format!("printed an invalid report: {error}")))?;
        let copies = shown.passes.get(stentor_switch::Cause::Copied.name()).copied().unwrap_or_default();
        Ok(Switched { copies, copies_asked })
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        drop(child.stdin.take());
        // Has no effect on a process that has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn failed(status: ExitStatus) -> Failure {
    wrong(&format!("failed ({status}); its output is above"))
}

fn wrong(what: &str) -> Failure {
    Failure::run(
        format_args!("the switch {what}"),
        "stentor demo --switch",
        "no property was checked; start the demonstration again",
    )
}

fn unstarted(error: &std::io::Error) -> Failure {
    Failure::system("cannot start a switch", error, "stentor demo --switch", "allow more processes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switch_without_copies_is_a_failure() {
        let switched = |copies, copies_asked| Switched { copies, copies_asked };
        let verdicts = [(0, 9), (9, 0), (0, 0), (9, 9)].map(|(made, asked)| switched(made, asked).is_used());
        assert_eq!(verdicts, [false, false, false, true]);
    }
}
