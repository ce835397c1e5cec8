//! The bound of a fail-over: the time in which a bare program detects the death of a process that has as much memory as
//! a member.
//!
//! On shared memory, the kernel marks a robust futex. On a network, the connection of the dead process closes once the
//! kernel has torn down its memory.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric_shm::BareMemory;
use stentor_support::args::LoopbackFabric;
use stentor_support::live::this_program;
use stentor_support::{Failure, Verdict};

use super::super::worker_spec::{broken, follow};

/// Number of processes that are killed, one after the other.
const ROUNDS: usize = 21;
/// Number of words of the memory that the dying process shares with the one that detects its death.
const WORDS: usize = 512;
/// Word that the process sets when it is ready.
const READY: usize = 0;
/// Word of the robust futex, which the kernel marks.
const LIFE: usize = WORDS - 1;
/// Longest time to wait for one step.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between the process's report that it is ready and its death, so that it is idle when it is killed.
const CALM: Duration = Duration::from_millis(20);
const PAGE_WORDS: usize = 4096 / WORD;

/// The specification of a process that will be killed, which its command line carries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in super::super) struct Mortal {
    /// Size of the process's memory, in bytes.
    bytes: u64,
    /// Port to connect to.
    port: u16,
    /// Pid of the bench. This process is killed when the bench ends.
    parent: i32,
}

/// Runs the process that will be killed: touches its memory, connects, reports that it is ready, and polls.
pub(in super::super) fn live(spec: &str) -> Result<Verdict, Failure> {
    let spec: Mortal = serde_json::from_str(spec)
        .map_err(|error| Failure::usage(error, "bench mortal", "use `stentor bench failover`"))?;
    follow(spec.parent, "bench mortal")?;
    let fd = io::stdin().as_fd().try_clone_to_owned().map_err(broken("take the shared memory"))?;
    let shared = BareMemory::adopt(fd, WORDS).map_err(broken("map the shared memory"))?;
    let own = BareMemory::create((spec.bytes as usize / WORD).next_multiple_of(PAGE_WORDS).max(PAGE_WORDS));
    let own = own.map_err(broken("map memory"))?;
    own.words().iter().step_by(PAGE_WORDS).for_each(|word| word.store(1, Ordering::Relaxed));
    let _connection = TcpStream::connect((Ipv4Addr::LOCALHOST, spec.port)).map_err(broken("connect"))?;
    shared.hold_last().map_err(broken("hold a robust futex"))?;
    shared.words()[READY].store(1, Ordering::Release);
    shared.wake(READY);
    while own.words()[0].load(Ordering::Relaxed) == 1 {
        std::thread::yield_now();
    }
    Ok(Verdict::Good)
}

/// Returns the times in nanoseconds from the kill of a process with `bytes` of memory to its detection.
pub(super) fn measure(fabric: LoopbackFabric, bytes: u64) -> Result<Vec<u64>, Failure> {
    (0..ROUNDS).map(|_| Witness::of(bytes)?.see_it_die(fabric)).collect()
}

/// Returns a description of the detection.
pub(super) fn way(fabric: LoopbackFabric) -> &'static str {
    match fabric {
        LoopbackFabric::Shm => "the kernel marks its robust futex",
        LoopbackFabric::Roce => "its TCP connection ends",
    }
}

/// A child process that is killed when this value is dropped.
struct Doomed(Child);

impl Drop for Doomed {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that will be killed, and the means to detect its death.
struct Witness {
    shared: BareMemory,
    doomed: Doomed,
    connection: TcpStream,
}

impl Witness {
    fn of(bytes: u64) -> Result<Witness, Failure> {
        let shared = BareMemory::create(WORDS).map_err(broken("share memory"))?;
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(broken("listen"))?;
        let port = listener.local_addr().map_err(broken("listen"))?.port();
        let spec = Mortal { bytes, port, parent: std::process::id() as i32 };
        let memory = shared.descriptor().map_err(broken("share memory"))?;
        let mut command: Command = this_program().map_err(broken("find this program"))?;
        let child = command
            .args(["bench", "mortal", &serde_json::to_string(&spec).expect("a specification has string keys")])
            .stdin(Stdio::from(memory))
            .stdout(Stdio::null())
            .spawn()
            .map_err(broken("start a process"))?;
        let mut doomed = Doomed(child);
        let since = Instant::now();
        while shared.words()[READY].load(Ordering::Acquire) == 0 {
            shared.sleep(READY, 0, CALM).map_err(broken("wait"))?;
            if since.elapsed() > PATIENCE || !matches!(doomed.0.try_wait(), Ok(None)) {
                return Err(Failure::run(
                    "a process that is to be killed did not start",
                    "bench failover",
                    "run `stentor doctor`",
                ));
            }
        }
        let (connection, _) = listener.accept().map_err(broken("take a connection"))?;
        Ok(Witness { shared, doomed, connection })
    }

    fn see_it_die(mut self, fabric: LoopbackFabric) -> Result<u64, Failure> {
        std::thread::sleep(CALM);
        let life = self.shared.words()[LIFE].load(Ordering::Acquire);
        self.connection.set_read_timeout(Some(PATIENCE)).map_err(broken("use a socket"))?;
        let at = Instant::now();
        let killed = self.doomed.0.kill();
        let seen = killed.and_then(|()| match fabric {
            LoopbackFabric::Shm => {
                while self.shared.words()[LIFE].load(Ordering::Acquire) == life {
                    self.shared.sleep(LIFE, life as u32, PATIENCE)?;
                    if at.elapsed() > PATIENCE {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Ok(())
            }
            // The process sent nothing, so the connection is closed or reset.
            LoopbackFabric::Roce => self.connection.read(&mut [0; 1]).map(drop).or_else(|error| match error.kind() {
                io::ErrorKind::ConnectionReset => Ok(()),
                _ => Err(error),
            }),
        });
        let ns = at.elapsed().as_nanos() as u64;
        seen.map_err(broken("see a process die"))?;
        Ok(ns)
    }
}
