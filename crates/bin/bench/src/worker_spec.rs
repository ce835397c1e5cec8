//! The specification of one process of a bench, which its command line carries. A key is in the environment. All other
//! data is in the shared memory, which is the standard input of the process.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use stentor_fabric::ProcessId;

use stentor_support::Failure;
use stentor_support::args::Network;

use super::shared_area::{Command, Shape, SharedArea};
use crate::args::{NebMode, Pinning, Protocol, Waiting};

/// The specification of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WorkerSpec {
    /// Index among the processes of the bench.
    pub(super) process: usize,
    /// Directory of the control sockets.
    pub(super) directory: PathBuf,
    /// Process id of the conductor. This process ends when the conductor ends.
    pub(super) parent: i32,
    pub(super) shape: Shape,
    pub(super) part: Part,
    /// Processor that the process is pinned to.
    pub(super) processor: Option<usize>,
    /// Capture and faults of this process's network, on RoCEv2.
    pub(super) traffic: Network,
}

/// The process's part in a bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// One of two processes that use the verbs.
    Fabric {
        /// Longest payload, in bytes.
        bytes: usize,
        carrier: Carrier,
    },
    /// One of two processes that send messages.
    Channel {
        /// The second number of all loopback addresses, on RoCEv2 or libfabric. `None` on shared memory.
        network: Option<u8>,
        /// The provider, on libfabric.
        ofi: Option<String>,
        /// `true` if the receiver loads and checks every byte of a message in place.
        every_byte: bool,
    },
    /// A member or a client.
    Multicast(Cluster),
    /// A member or a client of a bench that measures one process at a time.
    #[serde(rename = "critical-path")]
    CriticalPath {
        cluster: Cluster,
        /// The processor of the measured process, and that of all others.
        ends: [usize; 2],
    },
    /// A process of the multicast's bounds alone, on given addresses.
    Hosts(Hosts),
    /// A process of the broadcast.
    Neb(Neb),
}

/// The fabric on which verbs are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Carrier {
    /// Shared memory.
    Shm,
    /// RoCEv2, with the second number of all loopback addresses.
    Roce(u8),
    /// The device with this address.
    Verbs {
        address: IpAddr,
        /// `true` if both processes share a processor. A process that waits then yields it.
        yields: bool,
    },
}

/// Parameters of the messages of a bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) window: u32,
    pub(super) bytes: u32,
    pub(super) wait: Waiting,
    pub(super) pin: Pinning,
    /// The second number of all loopback addresses, on RoCEv2. `None` on shared memory.
    pub(super) network: Option<u8>,
}

/// The processes of a broadcast bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Neb {
    pub(super) processes: u16,
    pub(super) mode: NebMode,
    pub(super) fast: bool,
    pub(super) signed: bool,
    pub(super) setting: Setting,
}

impl Neb {
    pub(super) fn processes(&self) -> usize {
        usize::from(self.processes)
    }
}

/// The cluster of a multicast bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Cluster {
    pub(super) groups: u16,
    pub(super) replicas: u16,
    pub(super) dest: u16,
    pub(super) clients: u16,
    pub(super) variant: Protocol,
    pub(super) setting: Setting,
}

impl Cluster {
    /// Returns the number of members of all groups. The clients follow them.
    pub(super) fn members(&self) -> usize {
        usize::from(self.groups) * usize::from(self.replicas)
    }

    /// Returns the number of members that a message goes to.
    pub(super) fn destinations(&self) -> usize {
        usize::from(self.dest) * usize::from(self.replicas)
    }

    /// Returns the number of all processes.
    pub(super) fn processes(&self) -> usize {
        self.members() + usize::from(self.clients)
    }
}

/// The cluster of the bounds alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Hosts {
    pub(super) cluster: Cluster,
    /// Address of each process.
    pub(super) addresses: Vec<IpAddr>,
    /// Largest payload of a packet, in bytes.
    pub(super) mtu: usize,
}

/// Returns the processors that this process may use.
pub(super) fn processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect())
}

/// Pins this process to some processors.
pub(super) fn pin(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for processor in processors {
        set.set(*processor);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Makes this process end when the bench ends.
pub(super) fn follow(bench: i32, place: &str) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| broken("follow the parent")(error.into()))?;
    if getppid().is_none_or(|parent| parent.as_raw_nonzero().get() != bench) {
        return Err(Failure::run("the bench has ended", place, "start it again"));
    }
    Ok(())
}

/// Returns the failure of a system call in the middle of a bench.
pub(super) fn broken(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::system(format_args!("cannot {what}"), &error, "bench", "run `stentor doctor`")
}

/// The part of one process in a phase.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) area: &'a SharedArea,
    pub(super) me: usize,
    pub(super) command: Command,
    pub(super) phase: u64,
}

impl Task<'_> {
    /// Returns the number of all iterations, including the warm-up.
    pub(super) fn total(&self) -> u64 {
        self.command.warmup + self.command.iterations
    }

    /// Returns a lower bound of the numbers of messages in this phase. It is larger than all numbers of earlier phases.
    pub(super) fn base(&self) -> u64 {
        self.phase << 32
    }
}

/// One process of a bench, and the memory that it shares with the others.
#[derive(Clone, Copy)]
pub(super) struct Worker<'a> {
    pub(super) spec: &'a WorkerSpec,
    pub(super) area: &'a SharedArea,
}

impl Worker<'_> {
    /// Returns the worker's process id on a fabric.
    pub(super) fn id(&self) -> ProcessId {
        ProcessId(self.spec.process as u16)
    }

    /// Runs the process until the conductor ends it. `perform` runs one phase.
    pub(super) fn serve(&self, mut perform: impl FnMut(&Task<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let Worker { area, spec: WorkerSpec { process: me, .. } } = *self;
        let mut last = 0;
        loop {
            let (phase, command) = area.next(last).map_err(broken("wait"))?;
            last = phase;
            if command.kind == Command::END {
                return Ok(());
            }
            area.meet(*me, phase);
            perform(&Task { area, me: *me, command, phase })?;
            area.finish(*me, phase);
        }
    }
}

impl WorkerSpec {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        serde_json::from_str(text)
            .map_err(|error| Failure::usage(error, "bench process", "use `stentor bench`, which starts processes"))
    }

    /// Maps the shared memory, and makes this process end when the conductor ends.
    pub(super) fn enter(&self) -> Result<SharedArea, Failure> {
        follow(self.parent, "bench process")?;
        if let Some(processor) = self.processor {
            pin(&[processor]).map_err(broken("stay on one processor"))?;
        }
        let fd = io::stdin().as_fd().try_clone_to_owned().map_err(broken("take the shared memory"))?;
        SharedArea::adopt(fd, self.shape).map_err(broken("map the shared memory"))
    }
}
